/* fields — reads single values of Slurm's `scontrol` output. */
#ifndef MUSTER_LAUNCHER_SLURM_FIELDS_H
#define MUSTER_LAUNCHER_SLURM_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

/* The value of NAME=value in `scontrol --oneliner` output; false: it is missing, empty or too
 * long. */
bool slurm_field(const char *text, const char *name, char *value, size_t size);
/* The value of a line "Name    = value" of `scontrol show config`; "": there is none. */
void slurm_setting(const char *config, const char *name, char *value, size_t size);

#endif
