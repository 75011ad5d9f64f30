/* take_variable — reads a secret from the environment of a process that muster started. */
#ifndef MUSTER_LAUNCHER_TAKE_VARIABLE_H
#define MUSTER_LAUNCHER_TAKE_VARIABLE_H

/* A copy of a variable, which the caller frees. The variable is removed and its bytes are wiped, so
 * that neither children nor /proc/PID/environ show it. NULL: it is not set, or there is no memory. */
char *launcher_take_variable(const char *name);

#endif
