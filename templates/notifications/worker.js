/* The service worker of web push, and of nothing else: it shows what the desk sent, and a press opens its page. */
"use strict";
self.addEventListener("push", event => {
  let told = {};
  try { told = event.data.json(); } catch { /* an empty message still has to show something */ }
  const options = { body: String(told.body ?? ""), tag: String(told.tag ?? "plandesk"), data: { path: String(told.path ?? "/") } };
  event.waitUntil(self.registration.showNotification(String(told.title ?? "Plandesk"), options));
});
self.addEventListener("notificationclick", event => {
  event.notification.close();
  const url = new URL(event.notification.data.path, self.location.origin);
  if (url.origin === self.location.origin) event.waitUntil(self.clients.openWindow(url.href));
});
