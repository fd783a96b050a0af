"""The log's addresses alone, where the site mounts them."""

from django.urls import include, path

urlpatterns = [path("api/v1/audit/", include("audit.urls"))]
