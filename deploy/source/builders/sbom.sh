# A CycloneDX document of the closure of $subject, which Nix left in the file `closure`.
#   $subject $licensesPath $program
# Nothing in it is of the moment: the same closure gives the same bytes, and the serial number comes from all that decides
# about them.
digest=$(cat closure "$licensesPath" "$program" | sha256sum)
awk -v subject="$subject" -v digest="$digest" -v licenses="$licensesPath" -f "$program" closure > "$out"
