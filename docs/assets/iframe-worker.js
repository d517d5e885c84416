// Browsers start no workers for pages that are opened from the file system. There the search, which
// is one, runs in a hidden frame instead.
if (location.protocol === "file:") {
  const frameOnly = `
    window.postMessage = (data) => parent.postMessage(data, "*");
    window.importScripts = async (...urls) => {
      for (const url of urls) {
        await new Promise((loaded) => {
          const script = document.createElement("script");
          Object.assign(script, { src: url, onload: loaded });
          document.body.append(script);
        });
      }
    };`;

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      this.heard = (event) => {
        if (event.source !== inside) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        this.onmessage?.(event);
      };
      addEventListener("message", this.heard);
      this.ready = new Promise((loaded) => this.frame.addEventListener("load", loaded));
      const close = "</" + "script>";
      inside.document.open();
      inside.document.write(
        `<body><script>${frameOnly}${close}<script src="${url}">${close}</body>`,
      );
      inside.document.close();
    }

    postMessage(data) {
      const message = new MessageEvent("message", { data: structuredClone(data) });
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(message));
    }

    terminate() {
      removeEventListener("message", this.heard);
      this.frame.remove();
    }
  };
}
