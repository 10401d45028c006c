package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/mail"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// settings are the kubelet settings in user data.
type settings struct {
	labels map[string]string
	taints []corev1.Taint
	// maxPods is 0 if it is not set.
	maxPods int64
	// kubeReserved and systemReserved are by resource, evictionHard by eviction signal; nil: the image's own.
	kubeReserved, systemReserved, evictionHard map[string]string
	// nodeadm: nodeadm configures the image (AL2023).
	nodeadm bool
	// localDisks: the instance's own disks are one file system, for pods and images.
	localDisks bool
}

// nodeConfig is the part of nodeadm's configuration that matters here.
type nodeConfig struct {
	Kind string `json:"kind"`
	Spec struct {
		Kubelet struct {
			Config struct {
				MaxPods            *int64            `json:"maxPods"`
				KubeReserved       map[string]string `json:"kubeReserved"`
				SystemReserved     map[string]string `json:"systemReserved"`
				EvictionHard       map[string]string `json:"evictionHard"`
				RegisterWithTaints []corev1.Taint    `json:"registerWithTaints"`
			} `json:"config"`
			Flags []string `json:"flags"`
		} `json:"kubelet"`
		Instance struct {
			LocalStorage struct {
				Strategy string `json:"strategy"`
			} `json:"localStorage"`
		} `json:"instance"`
	} `json:"spec"`
}

// readUserData reads a MIME multi-part document, a NodeConfig, Bottlerocket's TOML or a script. An error means that the real node
// would not boot.
func readUserData(data []byte) (*settings, error) {
	s := &settings{labels: map[string]string{}}
	return s, s.read("", bytes.TrimSpace(data))
}

func (s *settings) read(contentType string, data []byte) error {
	text := string(data)
	switch {
	case text == "" || strings.HasPrefix(text, "#!"):
		return nil
	case strings.HasPrefix(text, "MIME-Version:") || strings.HasPrefix(text, "Content-Type:"):
		return s.readMultipart(data)
	case contentType == "text/x-shellscript" || contentType == "text/cloud-config":
		return nil
	case contentType == "application/node.eks.aws" || strings.Contains(text, "kind: NodeConfig"):
		return s.readNodeConfig(data)
	case strings.Contains(text, "[settings"):
		return s.readBottlerocket(data)
	}
	return nil // a custom image's own format
}

func (s *settings) readMultipart(data []byte) error {
	m, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("reading the MIME header: %w", err)
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("reading the MIME content type: %w", err)
	}
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a MIME part: %w", err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return fmt.Errorf("reading a MIME part: %w", err)
		}
		kind, _, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil {
			return fmt.Errorf("reading a MIME part's content type: %w", err)
		}
		if err := s.read(kind, bytes.TrimSpace(body)); err != nil {
			return err
		}
	}
}

// readNodeConfig applies a NodeConfig over what was read before, as nodeadm does with several of them.
func (s *settings) readNodeConfig(data []byte) error {
	s.nodeadm = true
	var c nodeConfig
	if err := yaml.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("reading NodeConfig: %w", err)
	}
	k := c.Spec.Kubelet
	if k.Config.MaxPods != nil {
		s.maxPods = *k.Config.MaxPods
	}
	if c.Spec.Instance.LocalStorage.Strategy == "RAID0" {
		s.localDisks = true
	}
	if k.Config.RegisterWithTaints != nil {
		s.taints = k.Config.RegisterWithTaints
	}
	for _, m := range []struct {
		to   *map[string]string
		from map[string]string
	}{{&s.kubeReserved, k.Config.KubeReserved}, {&s.systemReserved, k.Config.SystemReserved}, {&s.evictionHard, k.Config.EvictionHard}} {
		if m.from != nil {
			*m.to = m.from
		}
	}
	for _, flag := range k.Flags {
		if err := s.readFlag(flag); err != nil {
			return err
		}
	}
	return nil
}

func (s *settings) readFlag(flag string) error {
	name, value, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
	value = strings.Trim(value, `"`) // systemd, which starts the kubelet with nodeadm's flags, removes the quotes that Karpenter writes
	switch name {
	case "node-labels":
		for pair := range strings.SplitSeq(value, ",") {
			key, v, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("reading kubelet flags: label %q has no value", pair)
			}
			s.labels[key] = v
		}
	case "register-with-taints":
		s.taints = nil // the flag replaces the file's
		for text := range strings.SplitSeq(value, ",") {
			t, err := parseTaint(text)
			if err != nil {
				return fmt.Errorf("reading kubelet flags: %w", err)
			}
			s.taints = append(s.taints, t)
		}
	case "max-pods":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("reading kubelet flags: max-pods: %w", err)
		}
		s.maxPods = n
	}
	return nil
}

// parseTaint reads key=value:Effect or key:Effect.
func parseTaint(text string) (corev1.Taint, error) {
	pair, effect, ok := strings.Cut(text, ":")
	if !ok {
		return corev1.Taint{}, fmt.Errorf("taint %q has no effect", text)
	}
	key, value, _ := strings.Cut(pair, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

func (s *settings) readBottlerocket(data []byte) error {
	var doc struct {
		Settings struct {
			Kubernetes struct {
				MaxPods        int64               `toml:"max-pods"`
				Labels         map[string]string   `toml:"node-labels"`
				Taints         map[string][]string `toml:"node-taints"`
				KubeReserved   map[string]string   `toml:"kube-reserved"`
				SystemReserved map[string]string   `toml:"system-reserved"`
				EvictionHard   map[string]string   `toml:"eviction-hard"`
			} `toml:"kubernetes"`
		} `toml:"settings"`
	}
	if err := toml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("reading Bottlerocket settings: %w", err)
	}
	k := doc.Settings.Kubernetes
	s.maxPods, s.kubeReserved, s.systemReserved, s.evictionHard = k.MaxPods, k.KubeReserved, k.SystemReserved, k.EvictionHard
	maps.Copy(s.labels, k.Labels)
	for key, values := range k.Taints {
		for _, v := range values {
			t, err := parseTaint(key + "=" + v)
			if err != nil {
				return fmt.Errorf("reading Bottlerocket settings: %w", err)
			}
			s.taints = append(s.taints, t)
		}
	}
	return nil
}
