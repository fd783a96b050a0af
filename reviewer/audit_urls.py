"""Addresses of the auditors' pages, under /audit/."""

from django.urls import path

from reviewer.views import audit, audit_charts, audit_event, audit_export, audit_saved, audit_verify

urlpatterns = [
    path("", audit.audit, name="audit"),
    path("events/<str:event_id>/", audit_event.event, name="audit-event"),
    path("events/<str:event_id>/proof/", audit_event.proof, name="audit-proof"),
    path("events/<str:event_id>/leaf/", audit_event.leaf, name="audit-leaf"),
    path("key/", audit_event.key, name="audit-key"),
    path("plans/<str:agent>/<str:target>/<str:plan_id>/", audit_event.story, name="audit-story"),
    path("saved/", audit_saved.saved, name="audit-saved"),
    path("saved/<uuid:pk>/", audit_saved.saved_search, name="audit-saved-search"),
    path("saved/<uuid:pk>/change/", audit_saved.change_saved, name="audit-saved-change"),
    path("export/", audit_export.export, name="audit-export"),
    path("exports/", audit_export.exports, name="audit-exports"),
    path("exports/<uuid:pk>/", audit_export.job, name="audit-job"),
    path("exports/<uuid:pk>/file/", audit_export.download, name="audit-file"),
    path("exports/<uuid:pk>/stop/", audit_export.stop, name="audit-stop"),
    path("verify/", audit_verify.verify, name="audit-verify"),
    path("verify/<uuid:pk>/", audit_verify.report, name="audit-report"),
    path("charts/", audit_charts.charts, name="audit-charts"),
]
