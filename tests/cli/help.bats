#!/usr/bin/env bats
# Every command has a manual page: --help prints it, `make man` makes a man page of it, `make install` installs it.

load ../helpers

setup_file() {
	pages=$BATS_FILE_TMPDIR/pages
	export pages
	"$top/doc/man/make" "$MUSTER" "$pages"
}

# Prints each command, a group's commands with the group.
list_commands() {
	local command
	for command in $("$MUSTER" --help | sed -n '/^COMMANDS/,/^OPTIONS/s/^  \([a-z]*\) .*/\1/p'); do
		if "$MUSTER" "$command" --help | grep -q '^usage:'; then
			"$MUSTER" "$command" --help | sed -n "s/^  \([a-z]*\) .*/$command \1/p"
		elif [[ $command != help ]]; then
			echo "$command"
		fi
	done
}

@test "each command's --help reads like a manual page" {
	list_commands >"$BATS_TEST_TMPDIR/commands"
	[[ $(wc -l <"$BATS_TEST_TMPDIR/commands") -ge 20 ]]
	while read -r words; do
		# shellcheck disable=SC2086 # a list of words
		run "$MUSTER" $words --help
		echo "$words: ${lines[0]}"
		[[ $status -eq 0 && ${lines[0]} == "muster $words — "* ]]
		for section in SYNOPSIS EXAMPLES "EXIT STATUS"; do
			grep -qx "$section" <<<"$output"
		done
	done <"$BATS_TEST_TMPDIR/commands"
}

@test "each command has a man page with its options, and groff formats it without a warning" {
	while read -r words; do
		page=$pages/muster-${words// /-}.1
		echo "$page"
		head -n 1 "$page" | grep -q '^\.TH MUSTER'
		# shellcheck disable=SC2086
		"$MUSTER" $words --help | sed -n '/^OPTIONS/,/^[A-Z]* *[A-Z]*$/s/^  \(--[a-z-]*\).*/\1/p' >"$BATS_TEST_TMPDIR/options"
		while read -r option; do
			grep -A 1 '^\.TP' "$page" | grep -qF -- "${option//-/\\-}"
		done <"$BATS_TEST_TMPDIR/options"
	done < <(list_commands)
	for page in "$pages"/muster.1 "$pages"/muster-{data,ckpt,bench}.1; do
		[[ -s $page ]]
	done
	command -v groff >/dev/null || skip "groff is not installed"
	for page in "$pages"/*.1; do
		run groff -k -ww -man -Tutf8 -P-cbou "$page"
		[[ $status -eq 0 && $(groff -k -ww -man -Tutf8 "$page" 2>&1 >/dev/null) == "" ]]
		[[ $output == *"NAME"* && $output == *"SYNOPSIS"* ]]
	done
}

@test "a tag with one space behind it is parted from its text" {
	grep -A 2 '^\.TP' "$pages/muster.1" | grep -qx generate
}

@test "make install installs programs, templates and man pages that work" {
	local root=$BATS_TEST_TMPDIR/root build
	build=$(dirname "$(realpath "$MUSTER")")
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s -C "$top" -o all -o programs -o "$build/muster" -o "$build/muster-agent" \
		BUILD="$build" CUDA_SO= DESTDIR="$root" PREFIX=/opt/muster install
	[[ -s $root/opt/muster/share/man/man1/muster-run.1 && -s $root/opt/muster/share/man/man1/muster-data-pack.1 ]]
	[[ $(find "$root/opt/muster/share/man/man1" -name '*.1' | wc -l) -eq $(find "$pages" -name '*.1' | wc -l) ]]
	[[ $("$root/opt/muster/bin/muster" --version) == $("$MUSTER" --version) ]]
	"$root/opt/muster/bin/muster" data pack --help | grep -q SYNOPSIS
	"$root/opt/muster/bin/muster" plan "$root/opt/muster/share/muster/templates/jobs/demo.ini" >/dev/null
	[[ -s $root/opt/muster/share/muster/python/muster_client.py && -s $root/opt/muster/include/muster_client.h ]]
}
