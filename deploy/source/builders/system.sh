# What a node runs, in one folder: configuration.nix, the names that it publishes and those of the secrets that it reads
# (one a line), and its programs.
#   $configuration $names $secrets $packages
mkdir -p "$out/bin"
ln -s "$configuration" "$out/configuration.nix"
for name in $names; do
	echo "$name"
done > "$out/names"
for secret in $secrets; do
	echo "$secret"
done > "$out/secrets"
for package in $packages; do
	ln -s "$package"/bin/* "$out/bin/"
done
