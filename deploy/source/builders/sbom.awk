# Reads a closure as Nix exports it (exportReferencesGraph): for each store path four things, a line each or more:
# the path, its deriver or nothing, the number of its references, and the references.
# Writes a CycloneDX 1.5 document about the store path `subject`. The file `licenses` has the licences that are known, a
# line each: a store path and an SPDX identifier. Needs only POSIX awk.

# The name of a store path: what follows the hash.
function named(path) {
	sub(/^.*\//, "", path)
	return substr(path, 34)
}

# The version begins after the first dash that no letter follows, as in builtins.parseDrvName.
function version_at(name) {
	return match(name, /-[^A-Za-z]/) ? RSTART : 0
}

# Nothing else in the name of a store path needs an escape in a package URL.
function url(text) {
	gsub(/\+/, "%2B", text)
	gsub(/\?/, "%3F", text)
	gsub(/=/, "%3D", text)
	return text
}

function component(path, type, indent,    name, version, at, text) {
	name = named(path)
	at = version_at(name)
	if (at) {
		version = substr(name, at + 1)
		name = substr(name, 1, at - 1)
	}
	text = indent "\"type\": \"" type "\",\n"
	text = text indent "\"bom-ref\": \"" path "\",\n"
	text = text indent "\"name\": \"" name "\",\n"
	if (version != "")
		text = text indent "\"version\": \"" version "\",\n"
	text = text indent "\"purl\": \"pkg:nix/" url(name) (version == "" ? "" : "@" url(version)) "\",\n"
	if (path in license)
		text = text indent "\"licenses\": [{\"license\": {\"id\": \"" license[path] "\"}}],\n"
	text = text indent "\"properties\": [{\"name\": \"nix:store_path\", \"value\": \"" path "\"}]\n"
	return text
}

function by_path(list, count,    i, j, path) {
	for (i = 2; i <= count; i++) {
		path = list[i]
		for (j = i - 1; j >= 1 && list[j] > path; j--)
			list[j + 1] = list[j]
		list[j + 1] = path
	}
}

BEGIN {
	while ((getline line < licenses) > 0) {
		split(line, words, " ")
		license[words[1]] = words[2]
	}
}

# A path refers to itself when its files name it: not a dependency.
{
	paths[++count] = $0
	path = $0
	getline
	getline
	references = $0 + 0
	for (r = 1; r <= references; r++) {
		getline
		if ($0 != path)
			depends[path, ++degree[path]] = $0
	}
}

END {
	by_path(paths, count)
	uuid = substr(digest, 1, 8) "-" substr(digest, 9, 4) "-5" substr(digest, 14, 3) "-8" substr(digest, 18, 3) "-" substr(digest, 21, 12)
	print "{"
	print "  \"$schema\": \"http://cyclonedx.org/schema/bom-1.5.schema.json\","
	print "  \"bomFormat\": \"CycloneDX\","
	print "  \"specVersion\": \"1.5\","
	print "  \"serialNumber\": \"urn:uuid:" uuid "\","
	print "  \"version\": 1,"
	print "  \"metadata\": {"
	print "    \"component\": {"
	printf "%s", component(subject, "platform", "      ")
	print "    }"
	print "  },"
	printf "  \"components\": ["
	separator = "\n"
	for (i = 1; i <= count; i++) {
		if (paths[i] == subject)
			continue
		printf "%s    {\n%s    }", separator, component(paths[i], "library", "      ")
		separator = ",\n"
	}
	print "\n  ],"
	printf "  \"dependencies\": ["
	separator = "\n"
	for (i = 1; i <= count; i++) {
		path = paths[i]
		n = degree[path] + 0
		for (r = 1; r <= n; r++)
			sorted[r] = depends[path, r]
		by_path(sorted, n)
		printf "%s    {\"ref\": \"%s\", \"dependsOn\": [", separator, path
		for (r = 1; r <= n; r++)
			printf "%s\"%s\"", (r > 1 ? ", " : ""), sorted[r]
		printf "]}"
		separator = ",\n"
	}
	print "\n  ]"
	print "}"
}
