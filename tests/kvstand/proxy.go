package kvstand

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a client and the server, and answers in its place where a
// fault says so.
type Proxy struct {
	// URL is where it is reached.
	URL string
	// CAFile has the authority of its certificate, where it speaks TLS.
	CAFile string

	server *httptest.Server
	mu     sync.Mutex
	fault  Fault
	seen   []string
	// foreign is what it shows in the place of its certificate.
	foreign *tls.Certificate
}

// Fault answers a request in the place of the server and returns true, or lets
// it through and returns false.
type Fault func(w http.ResponseWriter, r *http.Request) bool

// Proxy starts a proxy, which ends with the test. With TLS it shows a
// certificate of its own authority.
func (s *Stand) Proxy(t testing.TB, withTLS bool) *Proxy {
	t.Helper()
	target, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{}
	through := httputil.NewSingleHostReverseProxy(target)
	// What it would say about a server that is away is of no use.
	through.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.seen = append(p.seen, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1/"))
		fault := p.fault
		p.mu.Unlock()
		if fault == nil || !fault(w, r) {
			through.ServeHTTP(w, r)
		}
	})
	server := httptest.NewUnstartedServer(handler)
	// Clients that break the connection are what it is for.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server = server
	if withTLS {
		server.TLS = &tls.Config{GetConfigForClient: p.other}
		server.StartTLS()
		p.CAFile = filepath.Join(t.TempDir(), "ca.pem")
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		if err := os.WriteFile(p.CAFile, certificate, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// other is what a connection gets where there is another certificate.
func (p *Proxy) other(*tls.ClientHelloInfo) (*tls.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.foreign == nil {
		return nil, nil
	}
	return &tls.Config{Certificates: []tls.Certificate{*p.foreign}}, nil
}

// Distrust has a proxy with TLS show a certificate that its authority does not
// know, until Trust.
func (p *Proxy) Distrust(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	p.show(&tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key})
}

// Trust has it show its own certificate again.
func (p *Proxy) Trust() { p.show(nil) }

func (p *Proxy) show(foreign *tls.Certificate) {
	p.mu.Lock()
	p.foreign = foreign
	p.mu.Unlock()
	// Those that are open have seen the one before.
	p.server.CloseClientConnections()
}

// Set sets the fault of the requests that come from now on; nil for none.
func (p *Proxy) Set(fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// Seen takes the requests that came since it was called last, as "GET
// secret/data/…".
func (p *Proxy) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

// Answer is a fault that answers all requests whose path has a text ("" for all)
// with a status and errors, as the server does.
func Answer(path string, status int, errors ...string) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, path) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": append([]string{}, errors...)})
		return true
	}
}

// Repeat is a fault that answers all requests whose path has a text with a
// status and everything that the client sent, as no server may.
func Repeat(path string, status int) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, path) {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		said := r.Header.Get("X-Vault-Token") + " " + string(body)
		return Answer(path, status, said)(w, r)
	}
}

// Silence is a fault that answers nothing until the client gives up.
func Silence(path string) Fault {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, path) {
			return false
		}
		// Only what has been read is seen to end.
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		return true
	}
}

// Lose is a fault that lets requests of a method, whose path has a text, through
// to the server and loses the answer: the connection breaks.
func (s *Stand) Lose(method, path string) Fault {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.Contains(r.URL.Path, path) {
			return false
		}
		request, err := http.NewRequestWithContext(r.Context(), r.Method, s.URL()+r.URL.RequestURI(), r.Body)
		if err == nil {
			request.Header = r.Header.Clone()
			if response, err := http.DefaultClient.Do(request); err == nil {
				_ = response.Body.Close()
			}
		}
		// Either way the client has no answer.
		panic(http.ErrAbortHandler)
	}
}
