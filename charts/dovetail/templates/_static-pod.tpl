{{- define "dovetail.staticPod" -}}
# A static pod: put it into /etc/kubernetes/manifests on each control plane machine, in place of kube-scheduler's.
apiVersion: v1
kind: Pod
metadata:
  name: kube-scheduler
  namespace: kube-system
  labels: {component: kube-scheduler, tier: control-plane}
  {{- if .Release.Service }}
  # A changed configuration restarts the pod.
  annotations: {checksum/config: {{ include "dovetail.config" . | sha256sum }}}
  {{- end }}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  # Only root may read scheduler.conf.
  securityContext:
    runAsUser: 0
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: kube-scheduler
      # The image that you have built, see docs/install.md.
      image: {{ include "dovetail.image" . }}
      args:
        - --config=/etc/kubernetes/dovetail/scheduler-config.yaml
        - --authentication-kubeconfig=/etc/kubernetes/scheduler.conf
        - --authorization-kubeconfig=/etc/kubernetes/scheduler.conf
        - --bind-address=127.0.0.1
        - --v={{ include "dovetail.verbosity" . }}
        {{- if ne .Values.logFormat "text" }}
        - --logging-format={{ .Values.logFormat }}
        {{- end }}
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.controller.env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      livenessProbe:
        httpGet: {host: 127.0.0.1, path: /livez, port: 10259, scheme: HTTPS}
        initialDelaySeconds: 15
        failureThreshold: 8
      readinessProbe:
        httpGet: {host: 127.0.0.1, path: /readyz, port: 10259, scheme: HTTPS}
      # With 2,000 nodes and 50 pods per second it used 504 MiB (docs/performance.md); a plan for 10,000 pods takes up to 100 MiB more. With
      # several thousand nodes raise the figure. It has no limits, like kubeadm's own: without its scheduler the whole cluster stands still.
      resources:
        requests:
          {{- toYaml .Values.controller.resources.requests | nindent 10 }}
      volumeMounts:
        - {name: kubeconfig, mountPath: /etc/kubernetes/scheduler.conf, readOnly: true}
        - {name: config, mountPath: /etc/kubernetes/dovetail, readOnly: true}
  volumes:
    - name: kubeconfig
      hostPath: {path: /etc/kubernetes/scheduler.conf, type: FileOrCreate}
    - name: config
      hostPath: {path: /etc/kubernetes/dovetail, type: DirectoryOrCreate}
{{- end }}
