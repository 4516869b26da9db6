#!/usr/bin/env bash
# Fails if a doc comment begins with a question, with a word that leans on another comment, or with a causative, or if a
# comment has a genitive where the field has a compound (CONTRIBUTING.md, Language), or is longer than 100 columns.
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck disable=SC2016 # a program of perl
if ! git ls-files -z '*.rs' | xargs -0 perl -ne '
    BEGIN { $found = 0 }
    $begins = !$doc;
    $doc = m{^\s*//[/!]\s*\S};
    $wrong = $doc && $begins && m{^\s*//[/!]\s*(Whether|Who|Whoever|Nobody|So many|What|The same|Those of|As for|Its|Their|Likewise|Says|Tells|Has)\b}
        || m{^\s*//.*\b(plugin|program|unit|pod|container|image)s? of (Docker|Podman|netavark|systemd|containerd|netmap|ns-3|Kubernetes)\b};
    if ($wrong) { print "$ARGV:$.: $_"; $found = 1 }
    if (eof) { close ARGV; $doc = 0 }
    END { exit $found }
'; then
    echo 'name what it is or does: "Returns true if ...", "Docker plugin" (CONTRIBUTING.md, Language)' >&2
    exit 1
fi
# Tables in comments may be wider.
# shellcheck disable=SC2016 # a program of perl
if ! git ls-files -z '*.rs' | xargs -0 perl -CSD -ne '
    BEGIN { $found = 0 }
    chomp;
    if (length($_) > 100 && m{^\s*//} && !m{^\s*//[/!] \|}) { print "$ARGV:$.: $_\n"; $found = 1 }
    close ARGV if eof;
    END { exit $found }
'; then
    echo 'end comments at column 100 (CONTRIBUTING.md, Style)' >&2
    exit 1
fi
