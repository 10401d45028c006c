package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/livecluster"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const retryHelp = `Let the spending guard launch a probe at once, where it has paused launches because instances failed.

Mend the cause first (docs/guard.md). The command sets the annotation ` + objects.AnnotationRetry + ` on the object that you name, or,
without one, on every NodePool, EC2NodeClass and Provisioner whose launches are paused. You need the right to patch it.
It is the only command of this program that changes anything in a cluster.`

const retryExamples = `  # Everything that is paused.
  dovetail retry

  # One pool, or one workload.
  dovetail retry nodepool default
  dovetail retry deployment web -n shop`

func retryCommand() *cobra.Command {
	f := newClusterFlags()
	dryRun := false
	cmd := &cobra.Command{
		Use: "retry [KIND NAME]", Short: "Let the spending guard launch a probe at once", Long: retryHelp, Example: retryExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				args = strings.Split(args[0], "/")
			}
			if len(args) != 0 && len(args) != 2 {
				return usageError{errors.New("an object is named by its kind and its name, as in: dovetail retry nodepool default")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				args = strings.Split(args[0], "/")
			}
			reader, err := f.reader()
			if err != nil {
				return err
			}
			return retry(cmd, reader, args, f.namespace(), dryRun)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "let the API server check the change, and change nothing")
	f.kube.add(cmd.Flags(), true)
	return cmd
}

// retried is an object to annotate, and why its launches are paused.
type retried struct {
	kind   livecluster.Retried
	name   string
	paused string
}

func retry(cmd *cobra.Command, reader *livecluster.Reader, args []string, namespace string, dryRun bool) error {
	snapshot, err := reader.Paused(cmd.Context())
	if err != nil {
		return err
	}
	set, err := manifest.Read(manifest.Options{Cluster: snapshot.Listings, Definitions: definitions})
	if err != nil {
		return err
	}
	paused := pausedObjects(set)
	chosen := paused
	if len(args) == 2 {
		kind, err := retriedKind(args[0])
		if err != nil {
			return usageError{err}
		}
		one := retried{kind: kind, name: args[1]}
		for _, p := range paused {
			if p.kind == kind && p.name == one.name {
				one = p
			}
		}
		chosen = []retried{one}
	}
	if len(args) == 0 && len(snapshot.Warnings) > 0 { // there may be more than what is known
		if len(chosen) == 0 {
			return errors.New(strings.Join(snapshot.Warnings, "; "))
		}
		warn(cmd, snapshot.Warnings)
	}
	if len(chosen) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "No NodePool, EC2NodeClass or Provisioner has paused launches: nothing was changed.")
		return err
	}
	var errs []error
	var text strings.Builder
	for _, o := range chosen {
		where := o.kind.Kind + " " + o.name
		if o.kind.Namespaced {
			where = o.kind.Kind + " " + namespace + "/" + o.name
		}
		if o.paused == "" && listed(set, o) {
			fmt.Fprintf(&text, "%s: its launches are not paused: nothing was changed\n", where)
			continue
		}
		value, before, err := reader.Retry(cmd.Context(), o.kind, namespace, o.name, clock.RealClock{}.Now(), dryRun)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
			continue
		}
		change := "set annotation"
		if dryRun {
			change = "would set annotation"
		}
		fmt.Fprintf(&text, "%s: %s %s to %q (it was %s)\n", where, change, objects.AnnotationRetry, value, cmp.Or(quoted(before), "not set"))
		switch {
		case o.paused != "":
			fmt.Fprintf(&text, "  a probe is launched at once for pods that wait; paused so far: %s\n", o.paused)
		default: // objects of this kind don't say, or may not be listed
			fmt.Fprintf(&text, "  if its launches are paused a probe is launched at once, and at most every five minutes\n")
		}
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), text.String()); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// listed reports whether an object was read that says whether its launches are paused.
func listed(set *manifest.Set, r retried) bool {
	return slices.ContainsFunc(manifest.All[status.Object](set), func(o status.Object) bool {
		return o.GetName() == r.name && o.GetObjectKind().GroupVersionKind().Kind == r.kind.Kind
	})
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%q", s)
}

// retriedKind returns the kind that a user names, in the singular, the plural, or kubectl's short form.
func retriedKind(name string) (livecluster.Retried, error) {
	short := map[string]string{"deploy": "Deployment", "rs": "ReplicaSet", "sts": "StatefulSet"}
	var all []string
	for _, k := range livecluster.RetriedKinds {
		if n := strings.ToLower(name); n == strings.ToLower(k.Kind) || n == k.Resource || short[n] == k.Kind {
			return k, nil
		}
		all = append(all, strings.ToLower(k.Kind))
	}
	return livecluster.Retried{}, fmt.Errorf("%q: must be one of %s", name, strings.Join(all, ", "))
}

// pausedObjects returns the pools and classes whose launches are paused.
func pausedObjects(set *manifest.Set) (out []retried) {
	for _, o := range manifest.All[status.Object](set) {
		i := slices.IndexFunc(livecluster.RetriedKinds, func(k livecluster.Retried) bool { return k.Kind == o.GetObjectKind().GroupVersionKind().Kind })
		if i < 0 {
			continue
		}
		for _, c := range o.GetConditions() {
			if c.Type == objects.ConditionLaunchesPaused && c.IsTrue() {
				out = append(out, retried{livecluster.RetriedKinds[i], o.GetName(), objects.OneLine(c.Message)})
			}
		}
	}
	return out
}
