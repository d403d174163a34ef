package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// certificateAge is how old a certificate in memory may be before its files are
// looked at again.
const certificateAge = time.Second

// certificate is a certificate in files, which are reread when they change:
// whoever renews it does not restart slipway.
type certificate struct {
	of                string // the API that shows it
	certFile, keyFile string
	log               *zap.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	from    stamp     // of the files that were loaded
	checked time.Time // when the files were looked at
}

// stamp tells one state of the two files from another.
type stamp struct{ cert, key time.Time }

// watchCertificate reads a certificate, which must be good at the start.
func watchCertificate(of, certFile, keyFile string, log *zap.Logger) (*certificate, error) {
	c := &certificate{of: of, certFile: certFile, keyFile: keyFile, log: log}
	from, err := c.stamp()
	if err == nil {
		err = c.load(from)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", of, err)
	}
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil },
	}
}

// get returns the certificate. One that cannot be read leaves the last good one
// in place: the two files may be in the middle of a change.
func (c *certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < certificateAge {
		return c.loaded
	}
	from, err := c.stamp()
	if err == nil && from != c.from {
		err = c.load(from)
	}
	if err != nil {
		c.log.Warn("the certificate cannot be read again; the last good one stays in use", zap.String("of", c.of), zap.Error(err))
	}
	c.checked = time.Now()
	return c.loaded
}

// stamp follows symbolic links, which Kubernetes swaps in a mounted Secret.
func (c *certificate) stamp() (s stamp, err error) {
	for _, file := range []struct {
		name string
		at   *time.Time
	}{{c.certFile, &s.cert}, {c.keyFile, &s.key}} {
		info, err := os.Stat(file.name)
		if err != nil {
			return s, err
		}
		*file.at = info.ModTime()
	}
	return s, nil
}

func (c *certificate) load(from stamp) error {
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.certFile, c.keyFile, err)
	}
	c.loaded, c.from, c.checked = &loaded, from, time.Now()
	return nil
}
