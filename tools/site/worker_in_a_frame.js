// Search runs in a worker, which browsers refuse to pages that are opened as files. There, a hidden frame stands in for it.
(() => {
  if (location.protocol !== "file:") return

  class IFrameWorker extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = (this.inside = frame.contentWindow)
      const loaded = (source) =>
        new Promise((resolve, reject) => {
          const script = frame.contentDocument.createElement("script")
          Object.assign(script, { src: source, onload: resolve, onerror: reject })
          frame.contentDocument.head.append(script)
        })
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...sources) => Promise.all(sources.map(loaded))
      this.ready = loaded(new URL(address, location.href).href)
    }

    postMessage(data) {
      // Copied, as to a worker.
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })))
    }

    terminate() {
      this.inside.frameElement.remove()
    }
  }

  window.IFrameWorker = window.Worker = IFrameWorker
})()
