# Reads what OpenBao answers to a read of an entry (KV version 2), and writes the text that the entry has under the key
# "value", byte for byte. Ends with 1 where there is none. Needs only POSIX awk, with LC_ALL=C.

{ text = text $0 "\n" }

END {
	at = 1
	found = 0
	value("")
	exit !found
}

# The character at which the next token begins.
function peek() {
	while (substr(text, at, 1) ~ /[ \t\r\n]/)
		at++
	return substr(text, at, 1)
}

function pass(character) {
	if (peek() != character)
		exit 1
	at++
}

# Passes over a value; `path` is the names of the members that it is in.
function value(path,    first) {
	first = peek()
	if (first == "{")
		members(path)
	else if (first == "[")
		elements(path)
	else if (first != "\"") {
		# A number, true, false or null.
		if (!match(substr(text, at), /^[-+.0-9A-Za-z]+/))
			exit 1
		at += RLENGTH
	} else if (path != "/data/data/value")
		string()
	else {
		printf "%s", string()
		found = 1
	}
}

function members(path,    name) {
	do {
		at++
		if (peek() == "}")
			break
		name = string()
		pass(":")
		value(path "/" name)
	} while (peek() == ",")
	pass("}")
}

function elements(path) {
	do {
		at++
		if (peek() == "]")
			break
		value(path "/")
	} while (peek() == ",")
	pass("]")
}

function string(    out, escape) {
	pass("\"")
	while (match(substr(text, at), /["\\]/)) {
		out = out substr(text, at, RSTART - 1)
		at += RSTART
		if (substr(text, at - 1, 1) == "\"")
			return out
		escape = substr(text, at++, 1)
		if (escape == "u")
			out = out utf8(code())
		else if (escape ~ /[bfnrt]/)
			out = out substr("\b\f\n\r\t", index("bfnrt", escape), 1)
		else
			out = out escape
	}
	exit 1
}

# The code point of an escape, of which four digits are left; of two escapes where it has a second half.
function code(    high) {
	high = digits()
	if (high < 55296 || high > 56319 || substr(text, at, 2) != "\\u")
		return high
	at += 2
	return 65536 + (high - 55296) * 1024 + digits() - 56320
}

function digits(    i, n) {
	for (i = 0; i < 4; i++)
		n = n * 16 + index("0123456789abcdef", tolower(substr(text, at++, 1))) - 1
	return n
}

# No awk can be trusted to write a zero byte.
function utf8(n) {
	if (n < 1)
		exit 1
	if (n < 128)
		return sprintf("%c", n)
	if (n < 2048)
		return sprintf("%c%c", 192 + int(n / 64), 128 + n % 64)
	if (n < 65536)
		return sprintf("%c%c%c", 224 + int(n / 4096), 128 + int(n / 64) % 64, 128 + n % 64)
	return sprintf("%c%c%c%c", 240 + int(n / 262144), 128 + int(n / 4096) % 64, 128 + int(n / 64) % 64, 128 + n % 64)
}
