"""Validates manifests of Kubernetes against the schemas of a version, and prints the configuration of each
NetworkAttachmentDefinition, a line of JSON each. A ServiceMonitor, whose schema Kubernetes does not have, must
lead to a Service, and its ports to ports of containers.

usage: validate.py VERSION FILE...
"""

import json
import sys

import kubernetes_validate
import yaml

# Kinds that are not Kubernetes' own.
FOREIGN = {"NetworkAttachmentDefinition", "Kustomization", "ServiceMonitor"}


def has_labels(wanted, labels):
    return wanted.items() <= labels.items()


def check_monitor(monitor, documents):
    """Returns what is wrong with a ServiceMonitor, if something is."""
    wanted = monitor["spec"]["selector"]["matchLabels"]
    meta = [document["metadata"] for document in documents]
    services = [
        document
        for document, of in zip(documents, meta)
        if document["kind"] == "Service" and has_labels(wanted, of.get("labels", {}))
    ]
    if not services:
        return f"no Service has the labels {wanted}"
    templates = [document["spec"]["template"] for document in documents if document["kind"] == "DaemonSet"]
    for service in services:
        of_pods = service["spec"]["selector"]
        pods = [it["spec"] for it in templates if has_labels(of_pods, it["metadata"]["labels"])]
        containers = [container for pod in pods for container in pod["containers"]]
        there = {port["name"] for container in containers for port in container.get("ports", [])}
        targets = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
        for endpoint in monitor["spec"]["endpoints"]:
            target = targets.get(endpoint["port"])
            if target not in there:
                return f"port {endpoint['port']} leads to {target}, but containers have {there}"
    return None


version, *files = sys.argv[1:]
everything = []
monitors = []
for file in files:
    with open(file) as text:
        documents = list(yaml.safe_load_all(text))
    for document in documents:
        kind = document["kind"]
        if kind != "Kustomization":
            everything.append(document)
        if kind == "ServiceMonitor":
            monitors.append((file, document))
        if kind == "NetworkAttachmentDefinition":
            print(json.dumps(json.loads(document["spec"]["config"])))
        if kind not in FOREIGN:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                path = ".".join(map(str, error.path))
                sys.exit(f"{file}: {kind}: {path}: {error.message}")
for file, monitor in monitors:
    if wrong := check_monitor(monitor, everything):
        sys.exit(f"{file}: ServiceMonitor: {wrong}")
