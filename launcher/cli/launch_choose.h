/* launch_choose — the table of launch backends. launcher/launch.h describes how to add one. */
#ifndef MUSTER_LAUNCHER_CLI_LAUNCH_CHOOSE_H
#define MUSTER_LAUNCHER_CLI_LAUNCH_CHOOSE_H

#include "launcher/launch.h"

/* The backend of [launch] launcher. auto: slurm inside an allocation, otherwise local. */
const struct launch_ops *command_launcher(enum job_launcher wanted);

#endif
