package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// serviceCIDR is the address range of the cluster's Services.
const serviceCIDR = "10.96.0.0/16"

// plane holds the files, ports and flags of one control plane.
type plane struct {
	dir, binary string
	options     Options
	etcdPort    int
	peerPort    int
	apiPort     int
	managerPort int
	admin       *identity
	manager     *identity
	scheduler   *identity // nil: the shipped ServiceAccount
}

// newPlane chooses ports and writes certificates and kubeconfigs.
func newPlane(dir, binary string, o Options) (*plane, error) {
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	p := &plane{dir: dir, binary: binary, options: o, etcdPort: ports[0], peerPort: ports[1], apiPort: ports[2], managerPort: ports[3]}
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory for certificates: %w", err)
	}
	ca, err := newAuthority("dovetail-test")
	if err != nil {
		return nil, err
	}
	proxyCA, err := newAuthority("dovetail-test-front-proxy")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"ca.crt": ca.pem, "front-proxy-ca.crt": proxyCA.pem}
	if files["apiserver.crt"], files["apiserver.key"], err = ca.issue(pkix.Name{CommonName: "kube-apiserver"}, "127.0.0.1", "localhost"); err != nil {
		return nil, err
	}
	if files["front-proxy.crt"], files["front-proxy.key"], err = proxyCA.issue(pkix.Name{CommonName: "front-proxy-client"}); err != nil {
		return nil, err
	}
	if files["sa.key"], files["sa.pub"], err = serviceAccountKeys(); err != nil {
		return nil, err
	}
	for name, data := range files {
		if err := os.WriteFile(p.pki(name), data, 0o600); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
	}
	if p.admin, err = p.certified(ca, "admin", pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}); err != nil {
		return nil, err
	}
	if o.Manifests == "replace" || o.Manifests == NoManifests {
		// With these manifests the scheduler replaces the cluster's own, and has the user that kubeadm gives that one.
		if p.scheduler, err = p.certified(ca, "scheduler", pkix.Name{CommonName: "system:kube-scheduler"}); err != nil {
			return nil, err
		}
	}
	p.manager, err = p.certified(ca, "controller-manager", pkix.Name{CommonName: "system:kube-controller-manager"})
	return p, err
}

func (p *plane) pki(name string) string { return filepath.Join(p.dir, "pki", name) }

// certified returns an identity with a client certificate.
func (p *plane) certified(ca *authority, name string, subject pkix.Name) (*identity, error) {
	cert, key, err := ca.issue(subject)
	if err != nil {
		return nil, err
	}
	return newIdentity(p.dir, name, &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", p.apiPort),
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.pem, CertData: cert, KeyData: key},
	})
}

func serviceAccountKeys() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the service account key: %w", err)
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the service account key: %w", err)
	}
	return private, encodePEM("PUBLIC KEY", der), nil
}

func (p *plane) command(name string, args ...string) command {
	return command{name: name, path: p.binary, log: filepath.Join(p.dir, name+".log"), args: append([]string{name}, args...)}
}

func (p *plane) etcd() command {
	return p.command("etcd",
		"--data-dir", filepath.Join(p.dir, "etcd"),
		"--listen-client", fmt.Sprintf("http://127.0.0.1:%d", p.etcdPort),
		"--listen-peer", fmt.Sprintf("http://127.0.0.1:%d", p.peerPort))
}

func (p *plane) apiServer() command {
	args := []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", p.etcdPort),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.apiPort),
		"--tls-cert-file=" + p.pki("apiserver.crt"),
		"--tls-private-key-file=" + p.pki("apiserver.key"),
		"--client-ca-file=" + p.pki("ca.crt"),
		"--requestheader-client-ca-file=" + p.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.pki("front-proxy.crt"),
		"--proxy-client-key-file=" + p.pki("front-proxy.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.pki("sa.pub"),
		"--service-account-signing-key-file=" + p.pki("sa.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		// Hundreds of simulated kubelets share the host with the API server. If it refused their requests as too many, a measurement
		// would show that as slowness of the scheduler.
		"--max-requests-inflight=1600",
		"--max-mutating-requests-inflight=800",
	}
	if !p.options.ControllerManager {
		// The admission plugin refuses pods in namespaces without a default ServiceAccount, and no controller creates one.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return p.command("kube-apiserver", append(args, p.options.APIServerArgs...)...)
}

func (p *plane) controllerManager() command {
	args := []string{
		"--kubeconfig=" + p.manager.path,
		"--authentication-kubeconfig=" + p.manager.path,
		"--authorization-kubeconfig=" + p.manager.path,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.managerPort),
		"--cert-dir=" + filepath.Join(p.dir, "pki"),
		"--service-account-private-key-file=" + p.pki("sa.key"),
		"--root-ca-file=" + p.pki("ca.crt"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		// The default of 20 requests a second would turn a burst of pods into a slow stream.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}
	return p.command("kube-controller-manager", append(args, p.options.ControllerManagerArgs...)...)
}
