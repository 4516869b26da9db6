#!/usr/bin/env bash
# Fails if a comment begins with a word that begins a question, and so is no description (CONTRIBUTING.md).
set -euo pipefail

cd "$(dirname "$0")/.."
if git grep -nE '^\s*//[/!] (Whether|Who|So many|What)\b' -- '*.rs'; then
    echo "say what it is or does: \"Returns true if ...\", \"State that ...\"" >&2
    exit 1
fi
