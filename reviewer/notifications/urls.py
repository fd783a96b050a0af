"""Addresses of the page of notifications and its scripts."""

from django.urls import path

from reviewer.notifications import views

urlpatterns = [
    path("", views.notifications, name="notifications"),
    path("push.js", views.push_script, name="notifications-push"),
    path("worker.js", views.worker_script, name="notifications-worker"),
]
