"""Addresses of the machines' doors."""

from django.urls import include, path, re_path

from plans import api, api_docs, webhook

urlpatterns = [
    path("webhooks/<str:name>", webhook.feed),
    path("api/v1/operations/<str:operation>/dry-run", api.dry_run_operation),
    path("api/v1/operations/<str:operation>/commit", api.commit_operation),
    path("api/v1/plans", api.list_plans),
    path("api/v1/plans/<str:plan_id>", api.read_plan),
    path("api/v1/plans/<str:plan_id>/commit", api.commit_plan),
    path("api/v1/plans/<str:plan_id>/abandon", api.abandon),
    path("api/v1/tasks/<str:task_id>/writes", api.write),
    path("api/v1/tasks/<str:task_id>/end", api.end),
    path("api/v1/tools", api_docs.list_tools),
    path("api/v1/openapi.json", api_docs.read_openapi),
    path("api/v1/docs", api_docs.read_docs),
    path("api/v1/audit/", include("audit.urls")),
    re_path(r"^api/(?P<rest>.*)$", api.nothing_here),
]
