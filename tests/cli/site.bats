#!/usr/bin/env bats
# The templates for sites: they are installed, agree with what `make install` installs, and the epilog removes only what is stale.

load ../helpers

# Installs the programs that are built already, below $installed, with PREFIX=/opt/muster. For setup_file.
setup_file() {
	local built
	built=$(dirname "$(realpath "$MUSTER")")
	export installed=$BATS_FILE_TMPDIR/installed site=$BATS_FILE_TMPDIR/installed/opt/muster/share/muster/templates/site
	# make compiles nothing: it takes the programs as they are.
	make -C "$top" --no-print-directory -o all -o "$built/muster" -o "$built/muster-agent" CUDA_HOME=/nonexistent "BUILD=$built" "DESTDIR=$installed" PREFIX=/opt/muster install >/dev/null
}

# Prints the installed files, relative to the prefix, without the pages of the manual.
installed_files() { (cd "$installed/opt/muster" && find . -type f ! -path './share/man/*' | sed 's/^\.//'); }

# --- The module file ---------------------------------------------------------------------------------------------

# Runs the module file in a Tcl interpreter with doubles of the commands of a module system. Prints what it does.
load_module() { # file
	tclsh /dev/stdin "$1" <<-'TCL'
		set file [lindex $argv 0]
		foreach command {module-whatis conflict prepend-path setenv} {
			proc $command {args} "puts \"$command \[join \$args\]\""
		}
		set code [catch {source $file} message]
		if {$code == 1} { puts "error: $message" }
		if {$code == 3} { puts "break" }
		if {[llength [info procs ModulesHelp]]} { puts "help" }
	TCL
}

@test "the module file is installed with the prefix and the version, and adds the program to PATH" {
	sed "s|^set prefix /opt/muster\$|set prefix $installed/opt/muster|" "$site/modulefile" >"$BATS_TEST_TMPDIR/modulefile"
	[[ $(head -n 1 "$site/modulefile") == "#%Module1.0" ]]
	! cmp -s "$site/modulefile" "$BATS_TEST_TMPDIR/modulefile" || return 1
	run load_module "$BATS_TEST_TMPDIR/modulefile"
	echo "$output"
	[[ $status -eq 0 ]]
	version=$("$MUSTER" --version | cut -d ' ' -f 2)
	[[ $output == "module-whatis muster $version: "*$'\n'"conflict muster"$'\n'"prepend-path PATH $installed/opt/muster/bin"$'\n'"help" ]]
	! grep -q @ "$site/modulefile" || return 1
}

@test "the module file refuses a prefix without the program" {
	sed "s|^set prefix .*|set prefix /no/such/prefix|" "$site/modulefile" >"$BATS_TEST_TMPDIR/modulefile"
	run load_module "$BATS_TEST_TMPDIR/modulefile"
	echo "$output"
	[[ $output == *"/no/such/prefix/bin/muster cannot be executed"*"break"* && $output != *prepend-path* ]]
}

# --- The spec file and the recipe ----------------------------------------------------------------------------------

@test "the spec file lists every installed file, and nothing else" {
	patterns=$(sed -n '/^%files/,$p' "$site/muster.spec" | sed 1d |
		sed 's|%{_bindir}|/bin|; s|%{_libexecdir}|/libexec|; s|%{_datadir}|/share|; s|%{_includedir}|/include|; s|%{_mandir}|/share/man|')
	[[ $patterns != *%* ]]
	files=$(installed_files; echo /share/man/man1/muster.1.gz; echo /share/man/man1/muster-run.1.gz)
	while read -r file; do
		matched=
		while read -r pattern; do
			# shellcheck disable=SC2053 # a pattern
			[[ $file == $pattern || $file == $pattern* && $pattern == */ ]] && matched=yes
		done <<<"$patterns"
		[[ -n $matched ]] || { echo "$file is installed, but not in %files"; return 1; }
	done <<<"$files"
	while read -r pattern; do
		grep -q "^${pattern//\*/.*}" <<<"$files" || { echo "$pattern is in %files, but not installed"; return 1; }
	done <<<"$patterns"
}

@test "the spec file has the program's version, and the packages that the README names" {
	[[ $(grep -oP '^Version: +\K.*' "$site/muster.spec") == "$("$MUSTER" --version | cut -d ' ' -f 2)" ]]
	named=$(sed -n '/dnf install/,/make$/p' "$top/README.md" | tr -d '\\' | sed 's/dnf install//' | tr -s ' \n' '\n' | grep . | sort)
	listed=$(grep -oP '^(Build)?Requires: +\K.*' "$site/muster.spec" | sort)
	diff <(echo "$named") <(echo "$listed")
}

# Loads the recipe with a double of Spack, and prints its dependencies and the words that it gives make. Argument: the variant.
read_recipe() {
	mkdir -p "$BATS_TEST_TMPDIR/spack"
	cat >"$BATS_TEST_TMPDIR/spack/package.py" <<-'PY'
		found = []
		def depends_on(spec, when=None, type=None): found.append((spec, when))
		def variant(*args, **words): pass
		def version(*args, **words): pass
		class MakefilePackage: pass
	PY
	PYTHONPATH=$BATS_TEST_TMPDIR python3 - "$site/package.py" "$1" <<-'PY'
		import runpy, sys, types
		from spack.package import found
		class Spec(dict):
		    def satisfies(self, what): return what == sys.argv[2]
		    def __missing__(self, name): return types.SimpleNamespace(prefix=types.SimpleNamespace(lib=f"/{name}/lib", __str__=None))
		recipe = runpy.run_path(sys.argv[1])["Muster"]()
		recipe.spec, recipe.prefix = Spec(), "/opt/spack/muster"
		recipe.spec["cuda"] = types.SimpleNamespace(prefix="/cuda")
		print("needs", *[name for name, when in found if when in (None, sys.argv[2])])
		print("build", *recipe.build_targets)
		print("install", *recipe.install_targets)
		paths = []
		recipe.setup_run_environment(types.SimpleNamespace(prepend_path=lambda name, value: paths.append(f"{name}={value}")))
		print("run", *paths)
	PY
}

@test "the recipe for Spack builds and installs with words that the Makefile knows" {
	run read_recipe none
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == *" pmix hwloc libinih "* && ${lines[0]} != *cuda* ]]
	[[ ${lines[1]} == "build CUDA_HOME=/nonexistent WARN=-Wall PREFIX=/opt/spack/muster all man" ]]
	[[ ${lines[2]} == "install CUDA_HOME=/nonexistent WARN=-Wall PREFIX=/opt/spack/muster install" ]]
	[[ ${lines[3]} == "run LD_LIBRARY_PATH=/openblas/lib" ]]
	# shellcheck disable=SC2086 # words
	make -C "$top" -n ${lines[2]#install } >"$BATS_TEST_TMPDIR/plan"
	grep -q ' /opt/spack/muster/bin$' "$BATS_TEST_TMPDIR/plan"
	run read_recipe +cuda
	[[ $status -eq 0 && ${lines[0]} == *" cuda@12: nccl" && ${lines[1]} == *"CUDA_HOME=/cuda "* && ${lines[3]} == *"=/nccl/lib" ]]
	# One package for each library that the programs are linked with.
	libraries=$(sed -n 's/^libs_[a-z]* *:= //p' "$top/Makefile" | sed 's/\$(or .*)/-lncursesw/' | tr -s ' ' '\n' | grep -vE '^-(lm|ldl|fopenmp)$' | sort -u | wc -l)
	run read_recipe none
	[[ $(tr ' ' '\n' <<<"${lines[0]}" | grep -cvE '^(needs|c|gmake|pkgconfig|openblas|curl|libmicrohttpd)$') -eq $libraries ]]
}

# --- The epilog ----------------------------------------------------------------------------------------------------

# A node's spool folder, TmpFS and /proc with step managers of jobs 7 and 70; job 8 has ended. 3 names belong to others.
make_node() {
	node=$BATS_TEST_TMPDIR/node
	mkdir -p "$node"/{spool,tmp,proc/{1,200,300,400}}
	for step in 7.0 8.0 8.1 70.4294967291; do
		python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$node/spool/stepd.slurm.pmix.$step"
		mkdir -p "$node/spool/pmix.$step/store" "$node/tmp/spmix_appdir_1000_$step/inner"
		touch "$node/spool/pmix.$step/store/segment"
	done
	touch "$node/spool/cred_state" "$node/spool/pmix.conf" "$node/tmp/spmix_appdir_notes"
	echo systemd >"$node/proc/1/comm"
	printf '/sbin/init\0' >"$node/proc/1/cmdline"
	echo slurmstepd >"$node/proc/200/comm"
	printf 'slurmstepd: [7.0]\0' >"$node/proc/200/cmdline"
	echo slurmstepd >"$node/proc/300/comm"
	printf 'slurmstepd: [70.interactive]\0' >"$node/proc/300/cmdline"
	echo slurmstepd >"$node/proc/400/comm" # it has ended and is not yet waited for
	: >"$node/proc/400/cmdline"
}

run_epilog() { "$site/epilog.sh" "$node/spool" "$node/tmp" "$node/proc"; }
left() { (cd "$node" && find spool tmp -mindepth 1 -maxdepth 1 -printf '%f\n' | LC_ALL=C sort | tr '\n' ' '); }

kept="cred_state pmix.7.0 pmix.70.4294967291 pmix.conf spmix_appdir_1000_7.0 spmix_appdir_1000_70.4294967291 spmix_appdir_notes stepd.slurm.pmix.7.0 stepd.slurm.pmix.70.4294967291 "

@test "the epilog removes what ended jobs have left, and nothing else" {
	make_node
	run run_epilog
	[[ $status -eq 0 && -z $output ]]
	left
	[[ $(left) == "$kept" ]]
	[[ -e $node/spool/pmix.7.0/store/segment ]]
}

@test "the epilog removes nothing while a step manager starts" {
	make_node
	before=$(left)
	mkdir "$node/proc/500"
	echo slurmstepd >"$node/proc/500/comm"
	printf '/usr/sbin/slurmstepd\0' >"$node/proc/500/cmdline"
	run run_epilog
	[[ $status -eq 0 && -z $output && $(left) == "$before" ]]
}

@test "the epilog follows no link, and does not fail on a node without the folders" {
	make_node
	mkdir "$BATS_TEST_TMPDIR/precious"
	touch "$BATS_TEST_TMPDIR/precious/file"
	ln -s "$BATS_TEST_TMPDIR/precious" "$node/tmp/spmix_appdir_1000_9.0"
	ln -s /no/such/file "$node/spool/pmix.9.0"
	run run_epilog
	[[ $status -eq 0 && -z $output && $(left) == "$kept" && -e $BATS_TEST_TMPDIR/precious/file ]]
	run "$site/epilog.sh" /no/such/spool /no/such/tmp /no/such/proc
	[[ $status -eq 0 && -z $output ]]
}
