# What a node runs, in one folder: configuration.nix, the names that it publishes (one a line), and its programs.
#   $configuration $names $packages
mkdir -p "$out/bin"
ln -s "$configuration" "$out/configuration.nix"
for name in $names; do
	echo "$name"
done > "$out/names"
for package in $packages; do
	ln -s "$package"/bin/* "$out/bin/"
done
