/** The user's settings of this extension, or the schema's defaults without a registry. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ISignal, Signal } from '@lumino/signaling';

/** The plugin whose schema (`schema/plugin.json`) has the settings, shortcuts and menus. */
export const SETTINGS_ID = 'tfcluster-labextension:plugin';

export interface ISettings {
  readonly side: 'left' | 'right';
  readonly confirmStop: boolean;
  readonly notifyFinished: boolean;
  readonly notifyFailed: boolean;
}

const DEFAULTS: ISettings = {
  side: 'left',
  confirmStop: true,
  notifyFinished: true,
  notifyFailed: true
};

/** The current settings, and a signal for changes. */
export class Settings {
  get current(): ISettings {
    return this._current;
  }

  get changed(): ISignal<Settings, ISettings> {
    return this._changed;
  }

  /**
   * Load the settings, and follow changes.
   *
   * With `translated`, the settings are requested again: the server translates the settings of a
   * single extension, but not the settings in the list with which the registry starts.
   */
  async follow(registry: ISettingRegistry, translated: boolean): Promise<void> {
    const loaded = await (translated
      ? registry.reload(SETTINGS_ID)
      : registry.load(SETTINGS_ID));
    const take = (): void => {
      this._current = {
        ...DEFAULTS,
        ...(loaded.composite as Partial<ISettings>)
      };
      this._changed.emit(this._current);
    };
    loaded.changed.connect(take);
    take();
  }

  private _current = DEFAULTS;
  private readonly _changed = new Signal<Settings, ISettings>(this);
}
