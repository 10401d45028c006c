package karpenter

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

const (
	// plainAnnotation is the size in bytes up to which an annotation is plain JSON that a person can read. Above it the JSON is
	// compressed: every claim of a launch batch repeats the whole launch request, and every update of the claim transmits it again.
	plainAnnotation = 4 << 10
	// maxAnnotation is the largest value written, in bytes. The API server refuses more than 256 KiB for all annotations of an object;
	// the difference is left for the annotations of the pool's template. A recorded launch batch is never trimmed: a claim that
	// forgets half of it could be launched twice. So a value that does not fit is an error before anything is launched.
	maxAnnotation = 200 << 10
	// maxDecoded is the size in bytes that a compressed value may reach when decompressed.
	maxDecoded = 8 << 20
	// compressed is the prefix of a value that is base64 of gzip of JSON.
	compressed = "gzip:"
)

// EncodeAnnotation returns the value of an annotation: JSON, compressed when it is long.
func EncodeAnnotation(key string, v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encoding annotation %s: %w", key, err)
	}
	if len(plain) <= plainAnnotation {
		return string(plain), nil
	}
	var buf bytes.Buffer
	buf.WriteString(compressed)
	text := base64.NewEncoder(base64.StdEncoding, &buf)
	zip, err := gzip.NewWriterLevel(text, gzip.BestSpeed)
	if err == nil {
		_, err = zip.Write(plain)
	}
	if err == nil {
		err = zip.Close()
	}
	if err == nil {
		err = text.Close()
	}
	if err != nil {
		return "", fmt.Errorf("compressing annotation %s: %w", key, err)
	}
	if buf.Len() > maxAnnotation {
		return "", fmt.Errorf("annotation %s is %d bytes long, at most %d can be recorded", key, buf.Len(), maxAnnotation)
	}
	return buf.String(), nil
}

// decodeAnnotation reads what EncodeAnnotation wrote. Unknown fields are an error, too: another version or another writer set them,
// and a launch record that is only half understood must not be acted on.
func decodeAnnotation(key, value string, into any) error {
	var r io.Reader = strings.NewReader(value)
	if rest, ok := strings.CutPrefix(value, compressed); ok {
		zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(rest)))
		if err != nil {
			return fmt.Errorf("annotation %s: decompressing: %w", key, err)
		}
		r = io.LimitReader(zip, maxDecoded)
	}
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("annotation %s: %w", key, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("annotation %s: there is more data after the value", key)
	}
	return nil
}
