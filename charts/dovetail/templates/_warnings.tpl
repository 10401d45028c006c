{{- /* What has no meaning here, or another one than its author may expect: one line each, printed by NOTES.txt. */}}
{{- define "dovetail.warnings" -}}
{{- $s := .Values.settings }}
{{- $c := .Values.controller }}
{{- $without := list }}
{{- range $name := list "image" "metrics" "healthProbe" }}
{{- if hasKey $c $name }}{{ $without = append $without (printf "controller.%s" $name) }}{{ end }}
{{- end }}
{{- range $name := list "logOutputPaths" "logErrorOutputPaths" }}
{{- if hasKey $.Values $name }}{{ $without = append $without $name }}{{ end }}
{{- end }}
{{- range $name := splitList " " (include "dovetail.foreignSettings" .) }}
{{- if hasKey $s $name }}{{ $without = append $without (printf "settings.%s" $name) }}{{ end }}
{{- end }}
{{- with $without }}
- These values of Karpenter's chart have no effect: {{ join ", " . }}.
{{- end }}
{{- if hasKey $c "image" }}
- controller.image is the image of Karpenter's controller. Dovetail's own is named by image.repository, image.tag and image.digest.
{{- end }}
{{- if hasKey $c "metrics" }}
- controller.metrics.port: metrics are on port 10259 over HTTPS, as those of kube-scheduler.
{{- end }}
{{- if $s.isolatedVPC }}
- settings.isolatedVPC: Dovetail asks for prices all the same. Where it gets no answer it estimates them, and the metric dovetail_aws_prices_estimated says so.
{{- end }}
{{- if eq (toString $s.ignoreDRARequests) "false" }}
- settings.ignoreDRARequests: false has no effect: set settings.dynamicResources to true, so that pods with unallocated dynamic resource claims get nodes.
{{- end }}
{{- $gates := $s.featureGates | default dict }}
{{- range $name := list "capacityBuffer" "nodeRepair" "nodeOverlay" "reservedCapacity" "spotToSpotConsolidation" "staticCapacity" }}
{{- if eq (toString (get $gates $name)) "false" }}
- settings.featureGates.{{ $name }}: false has no effect: this is always on.{{ if eq $name "nodeRepair" }} The annotation dovetail.sh/repair: "off" on a pool turns repair off.{{ end }}
{{- end }}
{{- end }}
{{- if and (eq (toString $s.batchIdleDuration) "1s") (eq (toString $s.batchMaxDuration) "10s") }}
- settings.batchIdleDuration and batchMaxDuration are Karpenter's defaults. Dovetail's own, 300ms and 3s, launch sooner: leave both out.
{{- end }}
{{- if eq .Values.podDisruptionBudget.name "karpenter" }}
- podDisruptionBudget.name: karpenter is the budget of Karpenter's chart. This one is called {{ include "dovetail.fullname" . }}.
{{- end }}
{{- if and (not $s.interruptionQueue) }}
- settings.interruptionQueue is empty: Dovetail doesn't learn that EC2 reclaims a spot instance, and its pods end without a drain.
{{- end }}
{{- if and $s.interruptionQueue (ne $s.interruptionQueue (printf "Dovetail-%s" $s.clusterName)) }}
- settings.interruptionQueue is {{ $s.interruptionQueue }}. If that is Karpenter's queue and Karpenter still reads it, each of the two misses messages: the stack of manifests/iam creates one called Dovetail-{{ $s.clusterName }}.
{{- end }}
{{- if eq (include "dovetail.serviceAccountName" .) "karpenter" }}
- serviceAccount.name is karpenter: the AWS role of docs/install.md is for kube-system/dovetail-scheduler, and Karpenter's release may own that account. Leave it out (--set serviceAccount.name=).
{{- end }}
{{- if eq (include "dovetail.fullname" .) "karpenter" }}
- nameOverride or fullnameOverride names Dovetail's objects karpenter, as those of Karpenter's release are named. Leave both out (--set nameOverride= --set fullnameOverride=).
{{- end }}
{{- $limits := $c.resources.limits | default dict }}
{{- if $limits.cpu }}
- controller.resources.limits.cpu throttles the scheduler, and with it every pod.
{{- end }}
{{- range $name := list "port" "path" "scheme" }}
{{- if hasKey $.Values.serviceMonitor.endpointConfig $name }}
- serviceMonitor.endpointConfig.{{ $name }} has no effect: metrics are at /metrics of the port {{ include "dovetail.scrapedPort" $ }}, as settings.metricsBindAddress says.
{{- end }}
{{- end }}
{{- if and .Values.prometheusRule.enabled (not .Values.serviceMonitor.enabled) }}
- prometheusRule without serviceMonitor: unless something else scrapes Dovetail, the alert DovetailNoLeader fires for ever.
{{- end }}
{{- if and .Values.networkPolicy.enabled $s.metricsBindAddress (not .Values.networkPolicy.metricsFrom) }}
- networkPolicy lets all pods read metrics at settings.metricsBindAddress, without a token: networkPolicy.metricsFrom confines that.
{{- end }}
{{- if semverCompare ">=1.37.0-0" .Capabilities.KubeVersion.Version }}
- Kubernetes {{ .Capabilities.KubeVersion.Version }}: this version of Dovetail supports API servers 1.34 to 1.36.
{{- end }}
{{- if eq .Values.mode "replace" }}
{{- range $name := list "clusterEndpoint" "clusterCABundle" "clusterCIDR" }}
{{- if not (get $s $name) }}
- settings.{{ $name }} is empty: Dovetail asks EKS for it. Without EKS nodes can't join, and those of node classes of the family Custom, which can, never drift when their class changes.
{{- end }}
{{- end }}
{{- if or .Values.serviceAccount.annotations .Values.imagePullSecrets }}
- serviceAccount.annotations and imagePullSecrets have no effect in mode replace: a static pod has neither account nor secrets, and uses what its machine may do.
{{- end }}
{{- if .Values.extraVolumes }}
- extraVolumes has no effect in mode replace: the static pod sees /etc/kubernetes/scheduler.conf and /etc/kubernetes/dovetail only, so flags of extraArgs can't name other files.
{{- end }}
{{- if or .Values.serviceMonitor.enabled .Values.networkPolicy.enabled .Values.namespacePolicy.enabled }}
- serviceMonitor, networkPolicy and namespacePolicy have no effect in mode replace: the static pods use their machine's network, and all pods are theirs.
{{- end }}
{{- end }}
{{- end }}
