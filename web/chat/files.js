// files.js - files: on their way up (picked, pasted, dropped; each with a bar until it is there), and as
// they are shown in messages.

const MAX_FILES = 8;
const MAX_BYTES = 25 * 1024 * 1024;
const SHOWN = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

function el(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function sizeText(bytes) {
  return bytes < 1024 ? `${bytes} ${bytes === 1 ? 'byte' : 'bytes'}` : bytes < 1024 * 1024 ? `${Math.round(bytes / 1024)} KB` : `${(bytes / 1048576).toFixed(1)} MB`;
}

/** What a message carries, as elements. */
export function showFiles(files, urlOf) {
  return (files || []).map((file) => {
    const url = urlOf(file);
    const name = file.name || file.kind;
    const box = el('figure', `file ${file.kind}`);
    const link = el('a', 'file-link');
    link.href = url;
    link.target = '_blank';
    link.rel = 'noopener';
    const gone = () => box.replaceChildren(el('span', 'gone', `${name} is no longer kept`));
    if (file.kind === 'image' && SHOWN.includes(file.type)) {
      const img = el('img');
      img.loading = 'lazy';
      img.alt = file.name || 'Picture';
      img.addEventListener('error', gone);
      img.src = url;
      link.append(img);
      box.append(link);
    } else if (file.kind === 'audio' || file.kind === 'voice' || file.kind === 'video') {
      const player = el(file.kind === 'video' ? 'video' : 'audio');
      player.controls = true;
      player.preload = 'metadata';
      player.setAttribute('aria-label', name);
      player.addEventListener('error', gone);
      player.src = url;
      box.append(player);
    } else {
      link.append(el('span', 'file-name', name), el('span', 'file-size', sizeText(file.size)));
      link.download = file.name || '';
      box.append(link);
    }
    return box;
  });
}

/** The files that go with the next message. */
export class Tray {
  /** @param {HTMLElement} element  @param {{upload: Function, changed: Function, refused: Function}} handlers */
  constructor(element, handlers) {
    this.element = element;
    this.handlers = handlers;
    this.items = [];
  }

  get busy() {
    return this.items.some((i) => !i.done);
  }

  get empty() {
    return this.items.length === 0;
  }

  add(list) {
    for (const file of list) {
      if (this.items.length >= MAX_FILES) this.handlers.refused(`At most ${MAX_FILES} files go with one message.`);
      else if (file.size > MAX_BYTES) this.handlers.refused(`${file.name || 'The file'} is larger than 25 MB.`);
      else if (file.size === 0) this.handlers.refused(`${file.name || 'The file'} is empty.`);
      else this.#start(file);
    }
  }

  /** Takes them out: what the message names. */
  take() {
    const files = this.items.map((i) => i.done);
    for (const i of [...this.items]) this.#remove(i);
    return files;
  }

  #start(file) {
    const item = { file, chip: el('div', 'chip') };
    const bar = el('progress');
    const drop = el('button', 'drop', '\u00d7');
    bar.max = 1;
    bar.value = 0;
    bar.setAttribute('aria-label', `Uploading ${file.name}`);
    drop.type = 'button';
    drop.setAttribute('aria-label', `Remove ${file.name}`);
    if (SHOWN.includes(file.type)) {
      const thumb = el('img');
      item.preview = URL.createObjectURL(file);
      thumb.src = item.preview;
      thumb.alt = '';
      item.chip.append(thumb);
    }
    item.chip.append(el('span', 'file-name', file.name || 'Pasted file'), el('span', 'file-size', sizeText(file.size)), bar, drop);
    drop.addEventListener('click', () => this.#remove(item));
    this.items.push(item);
    this.element.append(item.chip);
    this.element.hidden = false;
    this.handlers.changed();
    this.#upload(item, bar);
  }

  async #upload(item, bar) {
    const { promise, abort } = this.handlers.upload(item.file, (part) => { bar.value = part; });
    item.abort = abort;
    try {
      item.done = await promise;
      bar.hidden = true;
      item.chip.classList.add('there');
      this.handlers.changed();
    } catch (e) {
      if (!this.items.includes(item)) return;
      this.#remove(item);
      this.handlers.refused(`${item.file.name || 'The file'} was not taken. ${e.message}`);
    }
  }

  #remove(item) {
    const at = this.items.indexOf(item);
    if (at < 0) return;
    this.items.splice(at, 1);
    if (!item.done && item.abort) item.abort();
    if (item.preview) URL.revokeObjectURL(item.preview);
    item.chip.remove();
    this.element.hidden = this.items.length === 0;
    this.handlers.changed();
  }
}
