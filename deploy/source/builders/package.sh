# A program that says who it is and what it runs on. It names its inputs, so they are in its closure.
#   $pname $version $inputs
mkdir -p "$out/bin"
cat > "$out/bin/$pname" <<PROGRAM
#!/bin/sh
echo "$pname $version"
for input in $inputs; do
	echo "  with \$input"
done
PROGRAM
chmod 755 "$out/bin/$pname"
