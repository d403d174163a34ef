package kube

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// How long certificates last, and how long before its end one is made anew.
const (
	certificateTime  = 365 * 24 * time.Hour
	certificateSpare = 30 * 24 * time.Hour
)

// pair is a certificate and its key, in <name>.crt and <name>.key.
type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// certificateFiles makes the certificates that are absent or about to expire.
func certificateFiles(folder string, now time.Time) error {
	loopback := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	ca, err := authority(folder, "ca", now)
	if err != nil {
		return err
	}
	// etcd and the API server show the same certificate to each other.
	if _, err := issued(folder, "apiserver", ca, now, x509.Certificate{DNSNames: []string{"localhost", "kubernetes.default.svc"}, IPAddresses: loopback}); err != nil {
		return err
	}
	lease, err := authority(folder, "lease-ca", now)
	if err != nil {
		return err
	}
	_, err = issued(folder, "tls", lease, now, x509.Certificate{DNSNames: []string{"localhost", leaseHost}, IPAddresses: loopback})
	return err
}

// authority reads a CA, or makes it.
func authority(folder, name string, now time.Time) (pair, error) {
	ca, err := readPair(folder, name)
	if err == nil && now.Add(certificateSpare).Before(ca.certificate.NotAfter) {
		return ca, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pair{}, err
	}
	return makePair(folder, name, nil, now, x509.Certificate{
		Subject: pkix.Name{CommonName: "slipway-dev " + name}, NotAfter: now.Add(10 * certificateTime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
}

// issued reads a certificate of ca with the names of template, or makes it.
func issued(folder, name string, ca pair, now time.Time, template x509.Certificate) (pair, error) {
	p, err := readPair(folder, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pair{}, err
	}
	if err == nil && p.certificate.CheckSignatureFrom(ca.certificate) == nil &&
		slices.Equal(p.certificate.DNSNames, template.DNSNames) && now.Add(certificateSpare).Before(p.certificate.NotAfter) {
		return p, nil
	}
	template.Subject = pkix.Name{CommonName: "slipway-dev " + name}
	template.NotAfter = now.Add(certificateTime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return makePair(folder, name, &ca, now, template)
}

// makePair makes a key and its certificate, signed by ca or, without one, by
// itself.
func makePair(folder, name string, ca *pair, now time.Time, template x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair{}, err
	}
	template.SerialNumber = serial
	template.NotBefore = now.Add(-time.Hour)
	if ca == nil {
		ca = &pair{certificate: &template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return pair{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, err
	}
	// The key first: a pair is there when its certificate is.
	if err := writeKey(filepath.Join(folder, name+".key"), key); err != nil {
		return pair{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return pair{certificate, key}, write(filepath.Join(folder, name+".crt"), text, 0o644)
}

func readPair(folder, name string) (pair, error) {
	path := filepath.Join(folder, name+".crt")
	text, err := os.ReadFile(path)
	if err != nil {
		return pair{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return pair{}, fmt.Errorf("%s is not a PEM file; remove it to get a new one", path)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w; remove it to get a new one", path, err)
	}
	key, err := readKey(filepath.Join(folder, name+".key"))
	if err != nil {
		return pair{}, err
	}
	if !key.PublicKey.Equal(certificate.PublicKey) {
		// A new key was written, and its certificate was not.
		return pair{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return pair{certificate, key}, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file; remove it to get a new key", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to get a new key", path, err)
	}
	return key, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	// The form that every part of Kubernetes reads.
	return write(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// write puts a whole file in its place or none, whatever ends the program
// meanwhile. A file that says the same already is left alone.
func write(path string, content []byte, mode fs.FileMode) error {
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, content) {
		return nil
	}
	next := path + ".new"
	if err := os.WriteFile(next, content, mode); err != nil {
		return err
	}
	return os.Rename(next, path)
}
