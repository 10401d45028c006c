{{- /* Values of Karpenter's chart under settings that have no counterpart here; _warnings.tpl speaks about them. */}}
{{- define "dovetail.foreignSettings" -}}
isolatedVPC eksControlPlane ignoreDRARequests amiRefreshInterval subnetRefreshInterval featureGates
{{- end }}

{{- /* The fields of ProvisionArgs that are given, without those that the template writes itself. */}}
{{- define "dovetail.provisionArgs" -}}
{{- $args := dict }}
{{- range $name, $value := omit .Values.settings "clusterName" "region" "interruptionQueue" }}
{{- if not (or (has $name (splitList " " (include "dovetail.foreignSettings" $))) (kindIs "invalid" $value) (eq (toString $value) "")) }}
{{- $_ := set $args $name (eq $name "reservedENIs" | ternary (int $value) $value) }}
{{- end }}
{{- end }}
{{- with $args }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "dovetail.config" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  {{- if eq .Values.mode "replace" }}
  kubeconfig: /etc/kubernetes/scheduler.conf
  {{- end }}
  qps: {{ .Values.clientConnection.qps }}
  burst: {{ .Values.clientConnection.burst }}
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: {{ include "dovetail.lease" . }}
{{- with .Values.schedulerConfiguration }}
{{ toYaml . }}
{{- end }}
profiles:
  - schedulerName: {{ include "dovetail.schedulerName" . }}
    plugins:
      multiPoint:
        enabled:
          - name: Provision
          - name: Binder
          {{- if .Values.profile.gangs }}
          - name: Coscheduling
          {{- end }}
      # A plugin named both here and under multiPoint runs before all others at its extension point: Binder pins a
      # planned pod before the others see it, and Provision runs before preemption.
      preFilter:
        enabled:
          - name: Binder
      postFilter:
        enabled:
          - name: Provision
      {{- if .Values.profile.gangs }}
      # All profiles need the same queue sort.
      queueSort:
        enabled:
          - name: Coscheduling
        disabled:
          - name: "*"
      {{- end }}
    pluginConfig:
      - name: Provision
        args:
          apiVersion: config.dovetail.sh/v1alpha1
          kind: ProvisionArgs
          clusterName: {{ required "settings.clusterName: required: instances are tagged and found by it" .Values.settings.clusterName }}
          {{- with .Values.settings.region }}
          region: {{ . }}
          {{- end }}
          {{- with .Values.settings.interruptionQueue }}
          # The queue of manifests/iam/cloudformation.yaml, through which EC2 announces that it reclaims an instance. Without that stack
          # leave the line out: Dovetail then notices the end of an instance when its kubelet stops reporting.
          interruptionQueue: {{ . }}
          {{- end }}
          {{- with include "dovetail.provisionArgs" . }}
          {{- . | nindent 10 }}
          {{- end }}
      {{- with .Values.profile.binderArgs }}
      - name: Binder
        args:
          apiVersion: config.dovetail.sh/v1alpha1
          kind: BinderArgs
          {{- toYaml . | nindent 10 }}
      {{- end }}
      {{- if eq .Values.profile.scoringStrategy "MostAllocated" }}
      # Pods go to the fullest node that has room. By default they would go to the emptiest one, which consolidation is about to empty.
      {{- end }}
      - name: NodeResourcesFit
        args:
          scoringStrategy:
            type: {{ .Values.profile.scoringStrategy }}
      {{- with .Values.profile.pluginConfig }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with .Values.additionalProfiles }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
