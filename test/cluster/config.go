package cluster

import (
	"encoding/base64"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
)

// Config is a KubeSchedulerConfiguration as plain data, which a test can change before it starts a scheduler with it.
type Config map[string]any

// ShippedConfig returns the configuration in the ConfigMap of the manifests that the cluster runs with.
func (c *Cluster) ShippedConfig() (Config, error) {
	config, err := shippedConfig(c.folder)
	if err != nil {
		return nil, err
	}
	config.SetProvisionArgs(map[string]any{
		"clusterName":       "dovetail",
		"clusterEndpoint":   c.admin.config.Host,
		"clusterCABundle":   base64.StdEncoding.EncodeToString(c.admin.config.CAData),
		"clusterCIDR":       serviceCIDR,
		"region":            "us-west-2",
		"interruptionQueue": nil, // tests that have a queue set its name
	})
	return config, nil
}

func shippedConfig(folder string) (Config, error) {
	contents, err := manifests.Folder(folder)
	if err != nil {
		return nil, err
	}
	for _, content := range contents {
		var object corev1.ConfigMap
		if err := yaml.Unmarshal(content, &object); err != nil || object.Kind != "ConfigMap" {
			continue
		}
		config := Config{}
		if err := yaml.Unmarshal([]byte(object.Data[manifests.ConfigKey]), &config); err != nil {
			return nil, fmt.Errorf("reading %s of the shipped ConfigMap: %w", manifests.ConfigKey, err)
		}
		return config, nil
	}
	return nil, fmt.Errorf("manifests/%s has no ConfigMap", folder)
}

// SetKubeconfig sets the kubeconfig with which the scheduler connects to the API server.
func (c Config) SetKubeconfig(path string) { c.section("clientConnection")["kubeconfig"] = path }

// SetMediaType sets the media type in which the scheduler reads and writes built-in objects. By default it is protobuf.
func (c Config) SetMediaType(mediaType string) {
	connection := c.section("clientConnection")
	connection["contentType"], connection["acceptContentTypes"] = mediaType, mediaType
}

// ShortLeases makes a restarted scheduler wait six seconds instead of fifteen for the lease of a killed one. With a still shorter
// lease, a running scheduler would lose it on a busy host.
func (c Config) ShortLeases() { c.Leases(6*time.Second, 5*time.Second, 500*time.Millisecond) }

// LongLeases keeps a scheduler that has no rival from losing its lease, however slow the host is.
func (c Config) LongLeases() { c.Leases(time.Minute, 50*time.Second, 5*time.Second) }

// Leases sets how long a lease lasts, how long the leader tries to renew it before it gives up, and how often it tries.
func (c Config) Leases(duration, renewDeadline, retryPeriod time.Duration) {
	lease := c.section("leaderElection")
	lease["leaseDuration"], lease["renewDeadline"], lease["retryPeriod"] = duration.String(), renewDeadline.String(), retryPeriod.String()
}

// SetProvisionArgs sets fields of the Provision plugin's arguments in every profile that has them; nil removes a field.
func (c Config) SetProvisionArgs(fields map[string]any) {
	for _, profile := range c.Profiles() {
		plugins, _ := profile["pluginConfig"].([]any)
		for _, p := range plugins {
			plugin, _ := p.(map[string]any)
			args, _ := plugin["args"].(map[string]any)
			if plugin["name"] != "Provision" || args == nil {
				continue
			}
			for name, value := range fields {
				if value == nil {
					delete(args, name)
				} else {
					args[name] = value
				}
			}
		}
	}
}

// Profiles returns the configuration's profiles; changing them changes the configuration.
func (c Config) Profiles() []map[string]any {
	list, _ := c["profiles"].([]any)
	var profiles []map[string]any
	for _, p := range list {
		if profile, ok := p.(map[string]any); ok {
			profiles = append(profiles, profile)
		}
	}
	return profiles
}

// AddProfile adds a profile with that name and only the default plugins: an unmodified kube-scheduler beside Dovetail's profile.
func (c Config) AddProfile(schedulerName string) {
	list, _ := c["profiles"].([]any)
	c["profiles"] = append(list, map[string]any{"schedulerName": schedulerName})
}

// EnableGangs adds scheduler-plugins' Coscheduling to the first profile, as docs/gangs.md describes.
func (c Config) EnableGangs() {
	plugins := c.Profiles()[0]["plugins"].(map[string]any)
	multi := plugins["multiPoint"].(map[string]any)
	coscheduling := map[string]any{"name": "Coscheduling"}
	multi["enabled"] = append(multi["enabled"].([]any), coscheduling)
	plugins["queueSort"] = map[string]any{"enabled": []any{coscheduling}, "disabled": []any{map[string]any{"name": "*"}}}
}

// YAML returns the content of the file for --config.
func (c Config) YAML() ([]byte, error) {
	data, err := yaml.Marshal(map[string]any(c))
	if err != nil {
		return nil, fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	return data, nil
}

func (c Config) section(name string) map[string]any {
	section, ok := c[name].(map[string]any)
	if !ok {
		section = map[string]any{}
		c[name] = section
	}
	return section
}
