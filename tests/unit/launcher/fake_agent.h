/*
 * fake_agent — an agent that computes nothing. It wires up through PMIx, speaks on the control
 * channel, counts steps, and misbehaves on request. A test program is its own agent: its main calls
 * fake_agent when it finds itself started as one.
 *
 * FAKE_AGENT holds words: steps=N, step_ms=N, and die=RANK@STEP (SIGKILL itself, in its first
 * generation only), crash=RANK@STEP (in each generation), fail=RANK (before the first step),
 * hang=RANK@STEP. A checkpoint is a number in <run>/ckpt/step. The last rank writes it and reports
 * the steps. All ranks continue from the step that the run folder, FAKE_AGENT_RUN, holds before any
 * of them trains. Without that variable, they start from step 0.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_FAKE_AGENT_H
#define MUSTER_TESTS_UNIT_LAUNCHER_FAKE_AGENT_H

/* The agent's whole main; returns the exit status. */
int fake_agent(void);

#endif
