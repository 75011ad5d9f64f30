/* setting — reads single values of Slurm's configuration. */
#ifndef MUSTER_LAUNCHER_SLURM_SETTING_H
#define MUSTER_LAUNCHER_SLURM_SETTING_H

#include <stddef.h>

/* The value of a line "Name    = value" of `scontrol show config`; "": there is none. */
void slurm_setting(const char *config, const char *name, char *value, size_t size);

#endif
