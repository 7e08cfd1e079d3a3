// The admin console's page, which no build touches: run from the repository's root.
import js from '@eslint/js';

const names = [
  'Blob',
  'clearTimeout',
  'document',
  'fetch',
  'navigator',
  'setTimeout',
  'URLSearchParams'
];

export default [
  js.configs.recommended,
  {
    languageOptions: {
      globals: Object.fromEntries(names.map(name => [name, 'readonly']))
    },
    rules: {
      'no-restricted-properties': [
        'error',
        ...['innerHTML', 'outerHTML', 'insertAdjacentHTML', 'write'].map(
          property => ({ property })
        )
      ],
      eqeqeq: 'error',
      'no-eval': 'error',
      'prefer-const': 'error'
    }
  }
];
