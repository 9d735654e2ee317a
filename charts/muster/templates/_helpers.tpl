{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* A file of the kustomize manifests in the namespace of the release, which may be called 1 or on. */}}
{{- define "muster.file" -}}
{{- $text := .root.Files.Get (printf "files/%s" .path) | required (printf "files/%s is missing" .path) -}}
{{- $quoted := quote .root.Release.Namespace -}}
{{- $text = $text | replace "namespace: muster-system" (printf "namespace: %s" $quoted) -}}
{{- $text | replace "[muster-system]" (printf "[%s]" $quoted) | replace "muster-system" .root.Release.Namespace -}}
{{- end -}}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/component: operator
{{- end -}}

{{- define "muster.image" -}}
{{- $repository := required "image.repository is not set: build the image and push it (docs/install.md), then --set image.repository=REGISTRY/NAME" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Folder of the component. */}}
{{- define "muster.component" -}}
{{- if .Values.schedulerOnly -}}
scheduler
{{- else -}}
{{- .Values.gangScheduler -}}
{{- end -}}
{{- end -}}
