"""Addresses of the site."""

from allauth.account.views import login, logout
from django.conf import settings as django_settings
from django.urls import include, path

from plans import mcp_door
from reviewer.views import agents, callbacks, errors, history, inbox, live, people, plan, settings, streams, targets
from reviewer.views.health import healthz

PLAN = "plans/<str:agent>/<str:target>/<str:plan_id>/"

urlpatterns = [
    path("", inbox.inbox, name="inbox"),
    path("inbox/fresh/", inbox.fresh, name="inbox-fresh"),
    path(PLAN, plan.plan, name="plan"),
    path(f"{PLAN}news/", plan.news, name="plan-news"),
    path(f"{PLAN}recheck/", plan.recheck, name="plan-recheck"),
    path(f"{PLAN}approve/", plan.approve, name="plan-approve"),
    path(f"{PLAN}reject/", plan.reject, name="plan-reject"),
    path(f"{PLAN}settle/", plan.settle, name="plan-settle"),
    path(f"{PLAN}replan/", plan.replan, name="plan-replan"),
    path("live/", live.live, name="live"),
    path("history/", history.history, name="history"),
    path("audit/", include("reviewer.audit_urls")),
    path("settings/", settings.settings, name="settings"),
    path("settings/notifications/", include("reviewer.notifications.urls")),
    path("settings/look/", settings.look, name="look"),
    path("settings/password/", settings.password, name="password"),
    path("agents/", agents.agents, name="agents"),
    path("agents/<str:name>/", agents.agent, name="agent"),
    path("targets/", targets.targets, name="targets"),
    path("targets/<str:name>/", targets.target, name="target"),
    path("targets/<str:name>/policy/", targets.policy_panel, name="policy-panel"),
    path("callbacks/", callbacks.callbacks, name="callbacks"),
    path("streams/", streams.streams, name="streams"),
    path("streams/<str:name>/", streams.stream, name="stream"),
    path("people/", people.people, name="people"),
    path("people/<int:pk>/", people.person, name="person"),
    path("", include("plans.urls")),
    path("mcp", mcp_door.serve, name="mcp"),
    path(".well-known/oauth-protected-resource", mcp_door.describe),
    path(".well-known/oauth-protected-resource/mcp", mcp_door.describe),
    path("healthz", healthz, name="healthz"),
    path("login/", login, name="account_login"),
    path("logout/", logout, name="account_logout"),
]

if django_settings.DEMO:
    urlpatterns.append(path("demo/", include("reviewer.views.demo")))

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler429 = errors.too_many
handler500 = errors.server_error
