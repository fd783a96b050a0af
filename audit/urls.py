"""Addresses under /api/v1/audit/."""

from django.urls import path

from audit import api, api_export, api_tree

app_name = "audit"

urlpatterns = [
    path("events", api.list_events, name="events"),
    path("events/<str:event_id>", api.show_event, name="event"),
    path("events/<str:event_id>/proof", api_tree.show_proof, name="proof"),
    path("checkpoint", api_tree.show_checkpoint, name="checkpoint"),
    path("key", api_tree.show_key, name="key"),
    path("export", api_export.export, name="export"),
    path("verify", api_tree.verify, name="verify"),
    path("tile/<path:path>", api_tree.show_tile, name="tile"),
]
