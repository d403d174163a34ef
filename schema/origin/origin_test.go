package origin

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListIsReadStrictly(t *testing.T) {
	list, err := ParseList("https://panel.example, https://other.example:8443,http://localhost:3000,https://[2001:db8::1]")
	require.NoError(t, err)
	require.Len(t, list, 4)
	for entry, want := range map[string]string{
		"*": "wildcard", "https://*.example": "wildcard", "https://panel.example/": "slash at its end",
		"https://panel.example/path": "path", "https://panel.example?q": "query", "https://panel.example?": "query",
		"https://panel.example#f": "fragment", "https://me@panel.example": "user name", "null": "any page",
		"http://panel.example": "not https", "http://10.0.0.1": "not https", "ftp://panel.example": "not of the form",
		"panel.example": "not of the form", "https:panel.example": "not of the form", "https://": "slash at its end", "https:": "not of the form",
		"https://panel.example:0": "no possible port", "https://panel.example:99999": "no possible port",
		"https://panel.example:0443": "no possible port", "https://panel.example:": "empty port",
		"https://pänel.example": "characters", "https://2130706433": "four decimal numbers", "https://0x7f.1": "four decimal numbers",
		"https://127.1": "four decimal numbers", "https://[::1%25eth0]": "no possible IPv6 address", "https://panel..example": "no possible host name",
		"": "is empty", "https://panel.example.": "no possible host name",
	} {
		_, err := ParseList("https://good.example," + entry)
		require.ErrorContains(t, err, want, entry)
		require.ErrorContains(t, err, `the entry "`+entry+`"`)
	}
	_, err = ParseList("https://panel.example,https://panel.example:443")
	require.ErrorContains(t, err, "twice")
}

func TestOriginsOfBrowsers(t *testing.T) {
	list, err := ParseList("https://Panel.Example:443,http://localhost:3000,https://[2001:DB8::0001]:8443,http://127.0.0.1:80")
	require.NoError(t, err)
	for _, allowed := range []string{"https://panel.example", "http://localhost:3000", "https://[2001:db8::1]:8443", "http://127.0.0.1"} {
		require.True(t, list.Allows(allowed), allowed)
	}
	for _, refused := range []string{
		"", "null", "*", "https://panel.example:443", "https://PANEL.example", "https://panel.example/", "http://panel.example",
		"https://panel.example.evil.io", "https://evil.io/https://panel.example", "https://panel.example.", "http://localhost", "https://localhost:3000",
	} {
		require.False(t, list.Allows(refused), refused)
	}
	require.False(t, List(nil).Allows(""))
}

func TestTargets(t *testing.T) {
	list, err := ParseList("https://allowed.example,https://deep.example:8443,http://localhost:3000,https://192.0.2.7,https://[::ffff:192.0.2.8]")
	require.NoError(t, err)
	for _, url := range []string{
		"https://allowed.example", "https://allowed.example/", "https://allowed.example:443/reconcile?id=a%20b",
		"HTTPS://ALLOWED.Example/upper", "https://deep.example:8443/x", "http://localhost:3000/x", "https://192.0.2.7/",
		"https://[::FFFF:192.0.2.8]/", "https://[0:0:0:0:0:ffff:c000:0208]/",
	} {
		_, err := list.Target(url)
		require.NoError(t, err, url)
	}
	for name, url := range map[string]string{
		"another port":                    "https://allowed.example:8443/",
		"another port, default elsewhere": "https://deep.example/",
		"another scheme":                  "http://allowed.example/",
		"no scheme":                       "//allowed.example/",
		"a scheme in a scheme":            "javascript:https://allowed.example/",
		"file":                            "file://allowed.example/etc/passwd",
		"websocket":                       "wss://allowed.example/",
		"userinfo":                        "https://user:password@allowed.example/",
		"empty userinfo":                  "https://@allowed.example/",
		"a longer name":                   "https://allowed.example.evil.io/",
		"a name as the user":              "https://allowed.example@evil.io/",
		"a name as user and password":     "https://allowed.example:443@evil.io/",
		"a backslash":                     `https://evil.io\@allowed.example/`,
		"an encoded at":                   "https://evil.io%40allowed.example/",
		"a name before":                   "https://notallowed.example/",
		"a subdomain":                     "https://sub.allowed.example/",
		"trailing dot":                    "https://allowed.example./",
		"IDN look-alike":                  "https://аllowed.example/", // a Cyrillic а
		"its punycode":                    "https://xn--llowed-53d.example/",
		"full-width":                      "https://ａllowed.example/",
		"an encoded letter":               "https://%61llowed.example/",
		"an ideographic dot":              "https://allowed。example/",
		"a fragment":                      "https://allowed.example/#x",
		"an empty fragment":               "https://allowed.example/#",
		"a newline":                       "https://allowed.example/\nHost: evil.io",
		"a tab in the name":               "https://allo\twed.example/",
		"a space":                         " https://allowed.example/",
		"IPv6 loopback":                   "https://[::1]/",
		"a mapped address":                "https://[::ffff:127.0.0.1]/",
		"an address in brackets":          "https://[192.0.2.7]/",
		"another address":                 "https://169.254.169.254/latest/meta-data/",
		"a decimal address":               "https://3221225991/", // 192.0.2.7
		"an octal address":                "https://0300.0.2.7/",
		"a hexadecimal address":           "https://0xc0000207/",
		"a short address":                 "https://192.0.519/",
		"an address with a dot":           "https://192.0.2.7./",
		"a zone":                          "https://[fe80::1%25eth0]/",
		"loopback by another name":        "http://127.0.0.1:3000/",
		"too long":                        "https://allowed.example/" + strings.Repeat("a", MaxURL),
		"an empty port":                   "https://allowed.example:/",
		"a port with a sign":              "https://allowed.example:+443/",
		"empty":                           "",
	} {
		_, err := list.Target(url)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "evil", name)
		_, err = List(nil).Target(url)
		require.Error(t, err, name)
	}
	_, err = List(nil).Target("https://allowed.example/")
	require.ErrorContains(t, err, "not allowed")
}

func TestAddresses(t *testing.T) {
	list, err := ParseList("https://allowed.example,http://localhost:3000,http://127.0.0.1:1,https://[::1]")
	require.NoError(t, err)
	public := list[0]
	for _, address := range []string{"192.0.2.7", "10.1.2.3", "192.168.1.1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::192.0.2.7", "100.128.0.1", "100.63.255.255"} {
		require.NoError(t, public.CheckAddress(netip.MustParseAddr(address)), address)
	}
	for _, address := range []string{
		"169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "ff05::1", "0.0.0.0", "::", "0.1.2.3",
		"255.255.255.255", "100.64.0.1", "100.127.255.255", "fd00:ec2::254",
		"::ffff:169.254.169.254", "::ffff:100.64.0.1", "::ffff:0.0.0.0", "::ffff:127.0.0.1",
		"64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "2002:7f00:1::", "::169.254.169.254", "::127.0.0.1",
		"127.0.0.1", "127.8.8.8", "::1",
	} {
		require.Error(t, public.CheckAddress(netip.MustParseAddr(address)), address)
	}
	require.Error(t, public.CheckAddress(netip.Addr{}))
	for _, o := range list[1:] {
		require.True(t, o.Loopback())
		require.NoError(t, o.CheckAddress(netip.MustParseAddr("127.0.0.1")))
		require.NoError(t, o.CheckAddress(netip.MustParseAddr("::1")))
		require.Error(t, o.CheckAddress(netip.MustParseAddr("192.0.2.7")), "in plain text to another machine")
		require.Error(t, o.CheckAddress(netip.MustParseAddr("169.254.169.254")))
	}
}
