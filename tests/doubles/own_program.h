/* A second source file of own_program.c includes the client's header, too. */
#ifndef MUSTER_TESTS_DOUBLES_OWN_PROGRAM_H
#define MUSTER_TESTS_DOUBLES_OWN_PROGRAM_H

int own_program_should_stop(void);

#endif
