import { Notification } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LaunchModel } from '../src/launch/model';
import { LaunchContent } from '../src/launch/widget';
import { PLAN, serve } from './launching';
import { trans } from './runs';

/** A launch form; the line that the server returns contains the requested name. */
async function opened(up: () => boolean = () => true): Promise<LaunchModel> {
  const { clusters, json } = serve(async body => {
    if (!up()) {
      throw new TypeError('no network');
    }
    return json({ ...PLAN, line: `launch ${body.name ?? ''}` });
  });
  const model = new LaunchModel(clusters, null);
  await model.start();
  form = new LaunchContent({ model, trans, notebooks: null } as never);
  Widget.attach(form, document.body);
  return model;
}

/** Click the form's button once it is drawn. */
async function copy(): Promise<void> {
  const button = await vi.waitFor(() => {
    const all = [...form.node.querySelectorAll('button')];
    const found = all.find(({ textContent }) => textContent === 'Copy');
    expect(found).toBeDefined();
    return found;
  });
  button?.click();
}

let form: LaunchContent;
const said = { info: vi.fn(), error: vi.fn() };

beforeEach(() => {
  vi.spyOn(Notification, 'info').mockImplementation(said.info);
  vi.spyOn(Notification, 'error').mockImplementation(said.error);
});

afterEach(() => {
  form.dispose();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.clearAllMocks();
});

describe('the button that copies the line', () => {
  /** The browser's clipboard, which accepts promises. */
  function clipboard(): () => Promise<string> {
    let taken: Promise<Blob> | undefined;
    class Item {
      constructor(kinds: Record<string, Promise<Blob>>) {
        taken = kinds['text/plain'];
      }
    }
    vi.stubGlobal('ClipboardItem', Item);
    const write = async (): Promise<void> => void (await taken);
    vi.spyOn(navigator, 'clipboard', 'get').mockReturnValue({ write } as never);
    return async () => (await taken)?.text() ?? '';
  }

  /** Receives the copies by `document.execCommand('copy')`, the only way on pages without TLS. */
  function older(): () => string {
    let taken = '';
    vi.stubGlobal('ClipboardItem', undefined);
    document.execCommand = () => {
      const event = new Event('copy');
      const setData = (_kind: string, text: string): void =>
        void (taken = text);
      Object.assign(event, { clipboardData: { setData } });
      return document.body.dispatchEvent(event);
    };
    return () => taken;
  }

  it('takes what is typed now, however soon it is clicked', async () => {
    const copied = clipboard();
    const model = await opened();
    model.edit({ name: 'digits' });
    await copy();
    await vi.waitFor(() => expect(said.info).toHaveBeenCalledOnce());
    expect(await copied()).toBe('launch digits');
  });

  it('does so in a page without TLS, too', async () => {
    const copied = older();
    const model = await opened();
    model.edit({ name: 'digits' });
    await copy();
    await vi.waitFor(() => expect(said.info).toHaveBeenCalledOnce());
    expect(copied()).toBe('launch digits');
  });

  it('says so when the browser takes nothing', async () => {
    older();
    document.execCommand = () => false;
    await opened();
    await copy();
    await vi.waitFor(() => expect(said.error).toHaveBeenCalledOnce());
    expect(said.error.mock.calls[0][0]).toContain('select the line');
    expect(said.info).not.toHaveBeenCalled();
  });

  it('says why there is no line, and copies no older one', async () => {
    const copied = older();
    let up = true;
    const model = await opened(() => up);
    up = false;
    model.edit({ name: 'digits' });
    await copy();
    await vi.waitFor(() => expect(said.error).toHaveBeenCalledOnce());
    expect(said.error.mock.calls[0][0]).toContain('does not answer');
    expect(copied()).toBe('');
  });
});
