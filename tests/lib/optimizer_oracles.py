"""Every optimizer's formula in float64: lazy, per row, on the summed gradients of a step."""

from __future__ import annotations

import numpy as np


class Oracle:
    """A table in float64. `tick` is the optimizer's formula for the rows that occur."""

    def __init__(self, values, **params):
        self.value = values.astype(np.float64)
        self.__dict__.update(params)
        self.start()

    def zeros(self):
        return np.zeros_like(self.value)

    def start(self):
        pass


class Sgd(Oracle):
    def tick(self, i, g, lr):
        self.value[i] -= lr * g


class Momentum(Oracle):
    momentum_param, nesterov = 0.9, 0

    def start(self):
        self.momentum = self.zeros()

    def tick(self, i, g, lr):
        mu = self.momentum_param
        self.momentum[i] = mu * self.momentum[i] - lr * g
        self.value[i] += mu * self.momentum[i] - lr * g if self.nesterov else self.momentum[i]


class Rmsprop(Oracle):
    rho, epsilon = 0.9, 1e-7

    def start(self):
        self.velocity = self.zeros()

    def tick(self, i, g, lr):
        self.velocity[i] = self.rho * self.velocity[i] + (1 - self.rho) * g**2
        self.value[i] -= lr * g / np.sqrt(self.velocity[i] + self.epsilon)


class Adam(Oracle):
    beta_1, beta_2, epsilon = 0.9, 0.999, 1e-7

    def start(self):
        self.m, self.v, self.step = self.zeros(), self.zeros(), np.zeros((len(self.value), 1))

    def tick(self, i, g, lr):
        self.step[i] += 1
        self.m[i] = self.beta_1 * self.m[i] + (1 - self.beta_1) * g
        self.v[i] = self.beta_2 * self.v[i] + (1 - self.beta_2) * g**2
        m_hat = self.m[i] / (1 - self.beta_1 ** self.step[i])
        root = np.sqrt(1 - self.beta_2 ** self.step[i])
        self.value[i] -= lr * m_hat * root / (np.sqrt(self.v[i]) + self.epsilon)


class Adagrad(Oracle):
    initial_accumulator, epsilon, decay_steps = 0.0, 1e-10, 1

    def start(self):
        self.accumulator = self.zeros() + self.initial_accumulator
        self.ticks = np.zeros(len(self.value))

    def square(self, g):
        return g**2

    def tick(self, i, g, lr):
        """The formula of docs/optimizers.md: a decaying rate, and the mean square of the row."""
        n = self.ticks[i]
        self.accumulator[i] += self.square(g)
        self.ticks[i] += 1
        mean = (self.accumulator[i] + self.epsilon) / (n + 1)
        self.value[i] -= lr / np.sqrt(1 + n / self.decay_steps) * g / np.sqrt(mean)


class RowWiseAdagrad(Adagrad):
    decay_steps = 20

    def start(self):
        super().start()
        self.accumulator = np.full((len(self.value), 1), self.initial_accumulator)

    def square(self, g):
        return np.mean(g**2)


class Ftrl(Oracle):
    l1, l2, beta, l2_shrinkage, initial_accumulator = 0.0, 0.0, 0.0, 0.0, 0.0

    def start(self):
        self.z, self.n = self.zeros(), self.zeros() + self.initial_accumulator
        self.learning_rate = np.zeros((len(self.value), 1))

    def tick(self, i, g, lr):
        n = self.n[i] + g**2
        shrunk = g + 2 * self.l2_shrinkage * self.value[i]
        self.z[i] += shrunk - (np.sqrt(n) - np.sqrt(self.n[i])) / lr * self.value[i]
        self.n[i] = n
        self.learning_rate[i] = lr
        denominator = (self.beta + np.sqrt(n)) / lr + 2 * self.l2
        self.value[i] = (np.clip(self.z[i], -self.l1, self.l1) - self.z[i]) / denominator
