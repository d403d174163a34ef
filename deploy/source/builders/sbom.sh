# A CycloneDX document of the closure of $subject, which Nix left in the file `closure`.
#   $subject $program
# The serial number comes from what the document says, so the same closure gives the same bytes.
digest=$(sha256sum < closure)
awk -v subject="$subject" -v digest="$digest" -f "$program" closure > "$out"
