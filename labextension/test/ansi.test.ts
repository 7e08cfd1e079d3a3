import { describe, expect, it } from 'vitest';
import { plain, settled, spans } from '../src/logs/ansi';
import { isNoise } from '../src/logs/noise';

const ESC = '\x1b';
const look = (line: string): string[] =>
  spans(line).map(({ text, className, style }) =>
    [text, className, style?.color ?? '', style?.backgroundColor ?? ''].join(
      '|'
    )
  );

describe('a line of a program', () => {
  it('keeps the sixteen colours and the weights as classes of the theme', () => {
    expect(
      look(`a ${ESC}[1;31mred${ESC}[22m thin${ESC}[39m${ESC}[92m!`)
    ).toEqual([
      'a |||',
      'red|tfc-Ansi-bold tfc-Ansi-fg1||',
      ' thin|tfc-Ansi-fg1||',
      '!|tfc-Ansi-fg10||'
    ]);
  });

  it('has colours of the cube, of greys and of three numbers as numbers', () => {
    expect(look(`${ESC}[38;5;208mo`)).toEqual(['o||rgb(255, 135, 0)|']);
    expect(look(`${ESC}[48;5;232mg`)).toEqual(['g|||rgb(8, 8, 8)']);
    expect(look(`${ESC}[38;2;1;2;999mt`)).toEqual(['t||rgb(1, 2, 255)|']);
    expect(look(`${ESC}[38:2::1:2:3mt`)).toEqual(['t||rgb(1, 2, 3)|']);
    expect(look(`${ESC}[38;5;9;4mu`)).toEqual([
      'u|tfc-Ansi-underline tfc-Ansi-fg9||'
    ]);
  });

  it('turns ground and text around, and back', () => {
    expect(look(`${ESC}[7;31mi${ESC}[27mn${ESC}[mo`)).toEqual([
      'i|tfc-Ansi-inverse tfc-Ansi-bg1||',
      'n|tfc-Ansi-fg1||',
      'o|||'
    ]);
  });

  it('does nothing that a terminal would: no cursor, no title, no clipboard', () => {
    const evil = `${ESC}[2J${ESC}[Hgone${ESC}[3A${ESC}]0;title\x07${ESC}]52;c;aGk=${ESC}\\b${ESC}Pq#0${ESC}\\${ESC}(0c${ESC}cd\x9b2Je`;
    expect(plain(evil)).toBe('gonebcde');
    expect(spans(evil).map(span => span.text)).toEqual([
      'gone',
      'b',
      'c',
      'd',
      'e'
    ]);
  });

  it('shows controls as pictures and turns of direction by name', () => {
    expect(plain('nul\x00 del\x7f bell\x07 back\x08 form\x0c')).toBe(
      'nul␀ del␡ bell back form␌'
    );
    expect(plain('\u202egnp.exe\u2028')).toBe('<U+202E>gnp.exe<U+2028>');
  });

  it('stays as it is when there is nothing odd in it', () => {
    const line = '<b>tabs\tand 数字</b> 🎉';
    expect(plain(line)).toBe(line);
    expect(spans(line)).toEqual([{ text: line, className: '' }]);
  });

  it('gives the same text in pieces and as a whole, whatever comes', () => {
    const characters = [
      ESC,
      '[',
      ']',
      '3',
      '1',
      ';',
      'm',
      '\x07',
      '\x9b',
      'a',
      ':',
      '\\'
    ];
    let seed = 7;
    for (let round = 0; round < 3000; round++) {
      let line = '';
      for (let length = 0; length < 12; length++) {
        seed = (seed * 1103515245 + 12345) % 2147483648;
        line += characters[seed % characters.length];
      }
      const joined = spans(line)
        .map(span => span.text)
        .join('');
      expect(joined).toBe(plain(line));
      expect(joined).not.toContain(ESC);
    }
  });

  it('is the last state of a line that rewrites itself', () => {
    expect(settled('1/3\r2/3\r3/3\r')).toBe('3/3');
    expect(settled('3/3\r   ')).toBe('3/3');
    expect(settled('\r\r')).toBe('');
    expect(settled('plain')).toBe('plain');
  });
});

describe('a remark of TensorFlow itself', () => {
  it.each([
    '2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is optimized',
    '2026-11-21 16:36:34.123456: W external/local_xla/xla/tsl/framework/cpu_allocator_impl.cc:83] Allocation of 5',
    'I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] made',
    'To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate compiler flags.',
    'WARNING: All log messages before absl::InitializeLog() is called are written to STDERR'
  ])('is told by its form: %s', line => {
    expect(isNoise(line)).toBe(true);
  });

  it.each([
    '2026-11-21 16:36:34.123456: E tensorflow/core/grpc.cc:1] UNAVAILABLE',
    'F0000 00:00:1732207594.123456    4711 check.cc:88] Check failed',
    'I1121 16:36:34.123456 140 train.py:12] step 3',
    '2026-11-21 16:36:34 INFO train.py:12] step 3',
    'step 3'
  ])('is never an error or a line of the program: %s', line => {
    expect(isNoise(line)).toBe(false);
  });
});
