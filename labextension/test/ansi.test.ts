import { describe, expect, it } from 'vitest';
import { plain, settled, spans } from '../src/logs/ansi';

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
