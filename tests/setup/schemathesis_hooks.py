"""What schemathesis has to know of c3po beyond its description."""

import os
import urllib.parse

import schemathesis

# The key or login of the run: c3po_ID_SECRET, or c3po-login_ID_SECRET.
OWN = os.environ.get("C3PO_KEY", "").split("_")[1:2]
# A longer query does not fit into a head: hyper answers that with 431 and without a body.
QUERY_MAX = 6000
# The code of an invite that is good for the whole run.
CODE = os.environ.get("C3PO_CODE", "")


@schemathesis.hook
def before_call(context, case, kwargs):
    """Keeps the run's own key from being revoked or rotated by it: its id becomes one that no key has.

    And lets hosts in: a code that is guessed never does. And keeps to what the description's schemas do not express: a head has
    a longest length, a pair has two different agents, neither of them a person, and an invite for one host has one use.
    """
    if case.path_parameters and [case.path_parameters.get("id")] == OWN:
        case.path_parameters["id"] = "00000000"
    if case.query and len(urllib.parse.urlencode(case.query, doseq=True)) > QUERY_MAX:
        case.query = {}
    well_formed = case.meta is None or case.meta.generation.mode.is_positive
    path = case.path.replace("/api/v1/", "/api/", 1)
    if CODE and well_formed and path == "/api/join" and isinstance(case.body, dict):
        case.body["code"] = CODE
    if well_formed and path.startswith("/api/guard/") and isinstance(case.body, dict):
        agents = case.body.get("agents", [])
        if len(set(agents)) == 1 or {"human", "system", "all"} & {agent.lower() for agent in agents}:
            case.body["agents"] = ["0", "1"]
    if well_formed and path == "/api/invites" and isinstance(case.body, dict) and case.body.get("host"):
        case.body.pop("uses", None)


@schemathesis.deserializer("application/octet-stream", "application/openmetrics-text", "text/x-shellscript")
def as_text(context, response):
    """What is no JSON is described to be of any shape."""
    return ""
