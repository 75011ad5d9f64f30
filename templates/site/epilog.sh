#!/bin/sh
# epilog.sh - removes the sockets and folders that job steps with PMIx have left on this node. Slurm's plugin removes them itself,
# but not if its step manager (slurmstepd) was killed; a later step with the same number could not start then. Name this file
# in slurm.conf, on every node:
#
#     Epilog=/etc/slurm/epilog.d/*
#
# usage: epilog.sh [SPOOL [TMPFS [PROC]]]
#   SPOOL   SlurmdSpoolDir of this node, /var/spool/slurmd
#   TMPFS   TmpFS of this node, /tmp
#   PROC    where to look for step managers, /proc
#
# It removes only what belongs to jobs that have no step manager on this node. It asks no daemon, and always ends with status 0:
# Slurm drains a node whose epilog fails.
spool=${1:-/var/spool/slurmd}
tmpfs=${2:-/tmp}
proc=${3:-/proc}

# What exists now was made by step managers that either are found below or have ended.
set -- "$spool"/stepd.slurm.pmix.* "$spool"/pmix.* "$tmpfs"/spmix_appdir_*

running=" " # the jobs that have a step manager here
for process in "$proc"/[0-9]*; do
	name=
	read -r name 2>/dev/null <"$process/comm"
	[ "$name" = slurmstepd ] || continue
	title=$(tr '\0' ' ' 2>/dev/null <"$process/cmdline")
	case $title in
	"") continue ;; # it has ended
	*\[[0-9]*) job=${title#*\[} ;;
	*) exit 0 ;; # it starts: its job is not known yet
	esac
	running="$running${job%%[!0-9]*} "
done

for path; do
	[ -e "$path" ] || [ -L "$path" ] || continue # a pattern without a match stays as it is
	step=${path##*/}
	case $step in
	stepd.slurm.pmix.*) step=${step#stepd.slurm.pmix.} ;;
	pmix.*) step=${step#pmix.} ;;
	*) step=${step##*_} ;; # spmix_appdir_USER_JOB.STEP
	esac
	job=${step%%.*}
	case $job in
	"" | *[!0-9]*) continue ;;
	esac
	case $running in
	*" $job "*) continue ;;
	esac
	rm -rf -- "$path"
done
exit 0
