import './base.css';
import './run.css';
import './logs.css';
import './sidebar.css';
import './tensorboard.css';
import './compare.css';
import './launch.css';
import './output.css';
