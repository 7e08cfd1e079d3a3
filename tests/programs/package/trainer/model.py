class Model:
    def __init__(self, width):
        self.width = width

    def train(self, epochs):
        return f"{epochs} epochs of width {self.width}"
