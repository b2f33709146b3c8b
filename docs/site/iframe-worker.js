// Browsers start no workers from file://. There the search runs in a hidden frame, which behaves like a worker.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      this.loaded = new Promise((resolve) => { script.onload = resolve; });
      this.inside.document.body.appendChild(script);
    }

    // Worker.postMessage: the frame's handlers, `onmessage` or listeners, get the data.
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
  window.Worker = window.IFrameWorker;
}
