/* Subscribes this browser to web push when its button is pressed, and sends the subscription with the form around it. */
(() => {
  "use strict";
  const form = document.querySelector("[data-push]");
  if (!form) return;
  const button = form.querySelector("button");
  const say = name => { form.querySelector("[data-push-said]").textContent = form.querySelector(`[data-word="${name}"]`).textContent; };
  if (!("serviceWorker" in navigator && "PushManager" in window)) { say("no-push"); return; }
  button.disabled = false;
  const bytes = text => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), letter => letter.charCodeAt(0));
  form.addEventListener("submit", async event => {
    if (form.elements.endpoint.value) return;
    event.preventDefault();
    button.disabled = true;
    try {
      if (await Notification.requestPermission() !== "granted") { say("denied"); return; }
      const worker = await navigator.serviceWorker.register(form.dataset.worker);
      await navigator.serviceWorker.ready;
      const options = { userVisibleOnly: true, applicationServerKey: bytes(form.dataset.push) };
      const subscription = (await worker.pushManager.subscribe(options)).toJSON();
      form.elements.endpoint.value = subscription.endpoint;
      form.elements.p256dh.value = subscription.keys.p256dh;
      form.elements.auth.value = subscription.keys.auth;
      form.submit();
    } catch { say("failed"); } finally { button.disabled = false; }
  });
})();
