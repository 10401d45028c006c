{{- /* The name of all objects. It doesn't depend on the release: a cluster has one Dovetail, and roles, queue and docs name its account. */}}
{{- define "dovetail.name" -}}
{{ default "dovetail-scheduler" .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "dovetail.fullname" -}}
{{ default (include "dovetail.name" .) .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Labels by which the pods are selected. The release isn't one of them, so that a Deployment of the plain manifests can be adopted. */}}
{{- define "dovetail.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dovetail.name" . }}
{{- end }}

{{- /* Plain manifests (make manifests) are rendered without a release, and don't say that helm manages them. */}}
{{- define "dovetail.labels" -}}
{{ include "dovetail.selectorLabels" . }}
{{- if .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* metadata of an object: (list . NAME NAMESPACE LABELS ANNOTATIONS); the last two come in addition to those of all objects. */}}
{{- define "dovetail.metadata" -}}
{{- $ := index . 0 -}}
{{- $annotations := merge (deepCopy (index . 4)) $.Values.additionalAnnotations -}}
name: {{ index . 1 }}
{{- with index . 2 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "dovetail.labels" $ | nindent 2 }}
  {{- with index . 3 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "dovetail.serviceAccountName" -}}
{{- if .Values.serviceAccount.name -}}
{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}
{{ include "dovetail.fullname" . }}
{{- else -}}
{{ fail "serviceAccount.name: required, because serviceAccount.create is false" }}
{{- end }}
{{- end }}

{{- /* The subject of all bindings: the account of the Deployment, or kube-scheduler's user. */}}
{{- define "dovetail.subject" -}}
{{- if eq .Values.mode "replace" -}}
{kind: User, name: "system:kube-scheduler", apiGroup: rbac.authorization.k8s.io}
{{- else -}}
{kind: ServiceAccount, name: {{ include "dovetail.serviceAccountName" . }}, namespace: {{ .Release.Namespace }}}
{{- end }}
{{- end }}

{{- define "dovetail.lease" -}}
{{ eq .Values.mode "replace" | ternary "kube-scheduler" (include "dovetail.fullname" .) }}
{{- end }}

{{- define "dovetail.schedulerName" -}}
{{ eq .Values.mode "replace" | ternary "default-scheduler" .Values.profile.schedulerName }}
{{- end }}

{{- define "dovetail.image" -}}
{{- $repository := required "image.repository: required: no image is published. Build one with make image, push it, and name your repository" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}{{ with .Values.image.tag }}:{{ . }}{{ end }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "dovetail.verbosity" -}}
{{ get (dict "error" "0" "warn" "1" "info" "2" "debug" "4") .Values.logLevel }}
{{- end }}

{{- /* Gives terms of pod affinity, and spread constraints, that have no selector that of our pods: (list . TERMS). Prints nothing. */}}
{{- define "dovetail.podAffinityTerms" -}}
{{- $ := index . 0 }}
{{- $selector := dict "matchLabels" (include "dovetail.selectorLabels" $ | fromYaml) }}
{{- range $term := index . 1 }}
{{- $inner := hasKey $term "podAffinityTerm" | ternary $term.podAffinityTerm $term }}
{{- if not (hasKey $inner "labelSelector") }}
{{- $_ := set $inner "labelSelector" $selector }}
{{- end }}
{{- end }}
{{- end }}

{{- define "dovetail.affinity" -}}
{{- $ := . }}
{{- $affinity := deepCopy .Values.affinity }}
{{- range $kind := list "podAffinity" "podAntiAffinity" }}
{{- range $terms := get $affinity $kind | default dict }}
{{- include "dovetail.podAffinityTerms" (list $ $terms) }}
{{- end }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{- define "dovetail.topologySpreadConstraints" -}}
{{- $constraints := deepCopy .Values.topologySpreadConstraints }}
{{- include "dovetail.podAffinityTerms" (list . $constraints) }}
{{- toYaml $constraints }}
{{- end }}

{{/* The port of metrics over plain HTTP; empty: there is none. */}}
{{- define "dovetail.plainMetricsPort" -}}
{{- with .Values.settings.metricsBindAddress }}
{{- $port := regexFind "[0-9]+$" . }}
{{- if eq $port "10259" }}
{{- fail (printf "settings.metricsBindAddress: %s is the port of metrics over HTTPS, choose another one" .) }}
{{- end }}
{{- $port }}
{{- end -}}
{{- end }}

{{/* Where metrics are scraped: http-metrics if the plain port is open to other pods, otherwise https-metrics. */}}
{{- define "dovetail.scrapedPort" -}}
{{- $address := .Values.settings.metricsBindAddress | default "" }}
{{- if or (not $address) (regexMatch "^(127\\.|localhost:|\\[::1\\])" $address) -}}
https-metrics
{{- else -}}
http-metrics
{{- end -}}
{{- end }}
