package bootstrap

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	nodeConfigType = "application/node.eks.aws"
	shellType      = `text/x-shellscript; charset="us-ascii"`
	boundary       = "==dovetail=="
)

// mimePart is one part; its body stays in its transfer encoding ("": none).
type mimePart struct{ contentType, encoding, body string }

// decoded returns the part's text.
func (p mimePart) decoded() (string, error) {
	if !strings.EqualFold(p.encoding, "base64") {
		return p.body, nil // multipart.Reader decodes quoted-printable itself
	}
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(p.body), ""))
	if err != nil {
		return "", fmt.Errorf("decoding a MIME part: %w", err)
	}
	return string(raw), nil
}

// multipartOf writes parts in the form that cloud-init and nodeadm read.
func multipartOf(parts []mimePart) string {
	var s strings.Builder
	s.WriteString("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"" + boundary + "\"\n\n")
	for _, p := range parts {
		s.WriteString("--" + boundary + "\nContent-Type: " + p.contentType + "\n")
		if p.encoding != "" {
			s.WriteString("Content-Transfer-Encoding: " + p.encoding + "\n")
		}
		s.WriteString("\n" + strings.TrimSuffix(p.body, "\n") + "\n\n")
	}
	s.WriteString("--" + boundary + "--\n")
	return s.String()
}

// ownParts parses the user's user data: a multi-part document, a NodeConfig, or a script.
func ownParts(data string) ([]mimePart, error) {
	trimmed := strings.TrimSpace(data)
	switch {
	case trimmed == "":
		return nil, nil
	case strings.HasPrefix(trimmed, "MIME-Version:") || strings.HasPrefix(trimmed, "Content-Type:"):
		return readMultipart(trimmed)
	}
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(data), &doc); err == nil && doc["kind"] != nil {
		return []mimePart{{contentType: nodeConfigType, body: data}}, nil
	}
	return []mimePart{{contentType: shellType, body: data}}, nil
}

func readMultipart(data string) ([]mimePart, error) {
	m, err := mail.ReadMessage(strings.NewReader(data + "\n"))
	if err != nil {
		return nil, fmt.Errorf("reading the MIME header: %w", err)
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("reading the MIME content type: %w", err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return nil, fmt.Errorf("the MIME content type is %s, not multipart", kind)
	}
	var out []mimePart
	r := multipart.NewReader(m.Body, params["boundary"])
	for {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading MIME part %d: %w", len(out), err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return nil, fmt.Errorf("reading MIME part %d: %w", len(out), err)
		}
		out = append(out, mimePart{p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), string(body)})
	}
}
